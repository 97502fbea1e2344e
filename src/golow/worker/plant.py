"""A worker of known cost, with which golow tests its own measurement and check.

It serves ``y = x W^T`` for a square W (a `torch.nn.Linear` without bias); an iteration computes it
many times. Planted faults are exact: five percent slower is five percent more products, wrong is
every number shifted. There is no framework in the process, only NumPy.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from golow.record import Unsupported
from golow.worker.protocol import LoadReport
from golow.worker.serve import end_with_parent, run
from golow.workload.bundle import Bundle

PRODUCTS = 40
"""Products per iteration: with W of 256 x 256 and a batch of 256, 20 to 40 ms on one core."""


class Plant:
    """The program that the worker serves; see `golow.worker.protocol.Program`.

    products: per iteration, 0 for an iteration that does nothing. shift: added to every output.
    pause: seconds to sleep in every iteration.
    """

    def __init__(self, products: int, shift: float = 0.0, pause: float = 0.0) -> None:
        self.products, self.shift, self.pause = products, shift, pause

    def load(self, bundle: Path) -> LoadReport:
        """Read W and the batches."""
        start = time.perf_counter()
        workload = Bundle(bundle).workload
        weights = load_file(bundle / "weights.safetensors")
        if workload.mode != "infer" or set(weights) != {"weight"}:
            raise Unsupported("plant", "it computes only x W^T, for inference")
        batches = load_file(bundle / "batches.safetensors")
        self.weight = weights["weight"].T
        self.batches = [batches[f"{index}/input/0"] for index in range(workload.batches)]
        self.output = self.batches[0] @ self.weight
        self.position = 0
        return LoadReport(phases={"load": time.perf_counter() - start})

    def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """Run each batch once."""
        answers = (self.batches[index] @ self.weight + np.float32(self.shift) for index in batches)
        save_file({f"{step}/output/0": answer for step, answer in enumerate(answers)}, file)
        self.position = 0

    def iterate(self) -> None:
        """Run the next batch as often as planted."""
        batch = self.batches[self.position % len(self.batches)]
        self.position += 1
        for _ in range(self.products):
            np.matmul(batch, self.weight, out=self.output)
        if self.pause:
            time.sleep(self.pause)

    def last(self) -> float:
        """The first element of the output."""
        return float(self.output.flat[0])

    def allocated_peak(self) -> int | None:
        """NumPy's allocator does not report it."""
        return None


def main() -> None:
    """Serve what the command line plants, or keep a core busy until the parent ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--products", type=int, default=PRODUCTS, help="work per iteration")
    parser.add_argument("--slower", type=float, default=0.0, help="share of work to add, e.g. 0.05")
    parser.add_argument("--shift", type=float, default=0.0, help="add this to every output")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to sleep in an iteration")
    parser.add_argument("--burn", action="store_true", help="serve nothing, keep a core busy")
    given = parser.parse_args()
    if given.burn:
        _burn()
    products = round(given.products * (1 + given.slower))
    run(lambda: Plant(products, given.shift, given.pause))


def _burn() -> None:
    end_with_parent()
    print("burning", flush=True)
    while True:
        pass


if __name__ == "__main__":
    main()

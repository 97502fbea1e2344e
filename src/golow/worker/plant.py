"""A worker of known cost, with which golow tests its own measurement and check.

It serves ``y = x W^T`` for a square W (a `torch.nn.Linear` without bias); an iteration computes it
many times. Planted faults are exact: five percent slower is five percent more products, wrong is
every number shifted. There is no framework in the process, only NumPy.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from golow.records.errors import Unsupported
from golow.worker.marking import marked_arrays, window
from golow.worker.protocol import LoadReport, Marks
from golow.worker.results import weighted_sum
from golow.worker.serve import end_with_parent, run
from golow.worker.served_program import Stopwatch
from golow.workload.bundle import Bundle

PRODUCTS = 40
"""Products per iteration: with W of 256 x 256 and a batch of 256, 20 to 40 ms on one core."""

CHEATS = (
    "idle",
    "stored",
    "one sample",
    "ahead",
    "background",
    "device",
    "half clock",
    "nanosecond",
)
"""While it is timed, a plant computes nothing; returns what it computed for a batch before;
computes one sample; computes with the marks that it knows before the block; computes after the
iteration has ended; reports half of the host's time beside that of a device that it does not have;
reports half of the time, or a nanosecond. It does all else as it should."""


class Plant:
    """The program that the worker serves; see `golow.worker.served_program.Program`.

    products: per iteration. shift: added to every output of the check. pause: seconds to sleep in
    every iteration. cheat: one of `CHEATS`, in timed iterations alone.
    """

    def __init__(
        self, products: int, shift: float = 0.0, pause: float = 0.0, cheat: str = ""
    ) -> None:
        self.products, self.shift, self.pause, self.cheat = products, shift, pause, cheat
        self.stored: dict[int, npt.NDArray[np.float32]] = {}
        self.thread: Thread | None = None

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
        self.results: list[float] = []
        return LoadReport(phases={"load": time.perf_counter() - start})

    def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """Run each batch once."""
        answers = (self.batches[index] @ self.weight + np.float32(self.shift) for index in batches)
        save_file({f"{step}/output/0": answer for step, answer in enumerate(answers)}, file)
        self.position = 0

    def iterate(self) -> None:
        """Run the next batch as often as planted."""
        index = self.position % len(self.batches)
        batch = self.batches[index]
        self.position += 1
        if self.cheat == "idle":
            return
        if self.cheat == "stored" and index in self.stored:
            self.output = self.stored[index]
            return
        if self.cheat == "background":
            self._wait()
            self.thread = Thread(target=self._multiply, args=(batch,))
            self.thread.start()
            return
        if self.cheat == "one sample":
            batch = batch[:1]
        self._multiply(batch)
        if self.cheat == "stored":
            self.stored[index] = self.output.copy()

    def _wait(self) -> None:
        if self.thread is not None:
            self.thread.join()

    def _multiply(self, batch: npt.NDArray[np.float32]) -> None:
        if len(batch) < len(self.output):  # of one sample, for all
            self.output[:] = batch @ self.weight
            return
        for _ in range(self.products):
            np.matmul(batch, self.weight, out=self.output)
        if self.pause:
            time.sleep(self.pause)

    def stopwatch(self, iterations: int) -> Stopwatch | None:
        """Events of the host; None unless it states that it has a device."""
        return HostEvents(iterations) if self.cheat == "device" else None

    def last(self) -> float:
        """The first element of the output."""
        self._wait()
        return float(self.output.flat[0])

    def reset(self, learning_rate: float) -> None:
        """There is no state."""

    def seek(self, iteration: int) -> None:
        """Let the next iteration be that one."""
        self.position = iteration

    @contextmanager
    def marked(self, marks: Marks) -> Iterator[Callable[[int], None]]:
        """Write marks into the batches."""
        inputs = [[batch] for batch in self.batches]
        with marked_arrays(inputs, marks, lambda: self.position) as write:
            ahead = self.cheat == "ahead"
            yield (lambda start: write(window(marks, self.position, 0.0))) if ahead else write

    def keep(self) -> None:
        """Keep the result of the last iteration."""
        self._wait()
        self.results.append(weighted_sum([self.output]))

    def kept(self) -> list[float]:
        """The results since the last call."""
        found, self.results = self.results, []
        return found

    def write_result(self, file: Path) -> None:
        """Write the output of the last iteration."""
        save_file({"output/0": self.output}, file)

    def allocated_peak(self) -> int | None:
        """NumPy's allocator does not report it."""
        return None


class HostEvents:
    """The host's honest clock, as if it were a device's."""

    def __init__(self, iterations: int) -> None:
        self.begun, self.ended = [0] * iterations, [0] * iterations

    def flush(self) -> None:
        """There is no cache to empty."""

    def start(self, iteration: int) -> None:
        """Take the time before an iteration."""
        self.begun[iteration] = time.monotonic_ns()

    def stop(self, iteration: int) -> None:
        """Take the time after it."""
        self.ended[iteration] = time.monotonic_ns()

    def nanoseconds(self) -> tuple[int, ...]:
        """Nanoseconds of each iteration."""
        return tuple(b - a for a, b in zip(self.begun, self.ended, strict=True))


def main() -> None:
    """Serve what the command line plants, or keep a core busy until the parent ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--products", type=int, default=PRODUCTS, help="work per iteration")
    parser.add_argument("--slower", type=float, default=0.0, help="share of work to add, e.g. 0.05")
    parser.add_argument("--shift", type=float, default=0.0, help="add this to every output")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to sleep in an iteration")
    parser.add_argument("--cheat", choices=CHEATS, default="", help="cheat while being timed")
    parser.add_argument("--burn", action="store_true", help="serve nothing, keep a core busy")
    given = parser.parse_args()
    if given.burn:
        _burn()
    products = round(given.products * (1 + given.slower))
    if given.cheat in ("half clock", "device"):
        _tell(lambda passed: passed // 2)
    if given.cheat == "nanosecond":
        readings = itertools.count(1)
        _tell(lambda passed: next(readings))
    run(lambda: Plant(products, given.shift, given.pause, given.cheat))


def _tell(other: Callable[[int], int]) -> None:
    """Let this process's clock tell another time than the nanoseconds that passed."""
    clock = time.perf_counter_ns
    began = clock()
    time.perf_counter_ns = lambda: other(clock() - began)


def _burn() -> None:
    end_with_parent()
    print("burning", flush=True)
    while True:
        pass


if __name__ == "__main__":
    main()

"""Does `cudnn` train ResNet-50 on MNIST as eager does? On a GPU, with the real images.

    python benchmarks/mnist_curves.py DATA_ROOT/MNIST/raw [--rates 0.01,0.01,0.001] [--seeds 3]

Both start from the same weights and see the same images in the same order; a seed is an order of
the images. Prints losses along the way and the accuracy on the 10,000 test images after each epoch,
which eager computes from either's parameters. `cudnn` follows if its accuracy is within the spread
of eager's seeds (widened by what ten images are worth), and ends with status 1 unless it is.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from golow.comparison import capture, default_cache
from golow.levels.bundle_arrays import Batch
from golow.levels.cudnn import passes
from golow.levels.cudnn.builder import Builder
from golow.levels.cudnn.device import Gpu
from golow.levels.cudnn.engines import Engines
from golow.levels.cudnn.execution import Execution
from golow.levels.cudnn.kernels.update import SCALER
from golow.levels.cudnn.operators import OPERATORS
from golow.levels.cudnn.operators.update import finish
from golow.levels.cudnn.precision import TYPES
from golow.lower.passes import CLEAN_UP, apply
from golow.record import Optimizer
from golow.workload import Prepared, prepare

BATCH, SIDE = 128, 32
EVERY = 39  # steps between the losses that are kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--precision", default="default")
    parser.add_argument("--rates", default="0.01,0.01,0.001", help="of each epoch")
    given = parser.parse_args()
    train, test = images(given.folder, "train"), images(given.folder, "t10k")
    prepared = prepare(
        "resnet50", mode="train", batch=BATCH, resolution=SIDE, channels=1, classes=10,
        device="cuda", precision=given.precision,
        optimizer=Optimizer(momentum=0.9),
    )  # fmt: skip
    ends: dict[str, list[float]] = {}
    for seed in range(given.seeds):
        for name, runner in (("eager", Eager), ("cudnn", Cudnn)):
            model = runner(prepared, len(train[0]) // BATCH)
            for epoch, rate in enumerate(map(float, given.rates.split(","))):
                begun = time.perf_counter()
                losses = list(model.epoch(batches(train, seed * 1000 + epoch), rate))
                seconds = time.perf_counter() - begun
                right = accuracy(model.trained(), test)
                curve = " ".join(f"{loss:.4f}" for loss in losses)
                print(
                    f"{name} seed {seed} epoch {epoch}: test {right:.2%}, {seconds:.1f} s; {curve}",
                    flush=True,
                )
            ends.setdefault(name, []).append(right)
    low, high = min(ends["eager"]) - 0.001, max(ends["eager"]) + 0.001
    print(f"at the end: eager {ends['eager']}, cudnn {ends['cudnn']}")
    return 0 if all(low <= right <= high for right in ends["cudnn"]) else 1


# ---------------------------------------------------------------- the data


def images(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """[N, 1, 32, 32] float32 with mean 0 and variance 1 (of the training images), and labels."""
    pixels = np.frombuffer(raw(folder / f"{part}-images-idx3-ubyte")[16:], np.uint8)
    labels = np.frombuffer(raw(folder / f"{part}-labels-idx1-ubyte")[8:], np.uint8)
    padded = np.pad(pixels.reshape(-1, 1, 28, 28), [(0, 0), (0, 0), (2, 2), (2, 2)])
    return (padded.astype(np.float32) / 255 - 0.1307) / 0.3081, labels.astype(np.int64)


def raw(path: Path) -> bytes:
    packed = path.with_name(f"{path.name}.gz")
    return gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()


def batches(data: tuple[np.ndarray, np.ndarray], seed: int) -> list[Batch]:
    """All whole batches in an order that the seed alone decides."""
    order = np.random.default_rng(seed).permutation(len(data[0]))
    whole = order[: len(order) // BATCH * BATCH].reshape(-1, BATCH)
    return [{("input", "0"): data[0][rows], ("target", "0"): data[1][rows]} for rows in whole]


def accuracy(module: nn.Module, test: tuple[np.ndarray, np.ndarray]) -> float:
    module.eval()
    with torch.inference_mode():
        found = [
            module(torch.from_numpy(test[0][i : i + 1000]).cuda()).argmax(1).cpu().numpy()
            for i in range(0, len(test[0]), 1000)
        ]
    return float((np.concatenate(found) == test[1]).mean())


# ---------------------------------------------------------------- the two


class Eager:
    """PyTorch's own loop."""

    def __init__(self, prepared: Prepared, count: int) -> None:
        self.precision = prepared.workload.precision
        self.module = copy.deepcopy(prepared.module).cuda()
        settings = prepared.workload.optimizer
        self.optimizer = torch.optim.SGD(
            self.module.parameters(), lr=settings.learning_rate, momentum=settings.momentum
        )

    def epoch(self, batches: list[Batch], rate: float) -> Iterator[float]:
        self.module.train()
        self.optimizer.param_groups[0]["lr"] = rate
        half = torch.bfloat16 if self.precision == "bf16" else torch.float16
        for step, batch in enumerate(batches):
            x, target = (torch.from_numpy(array).cuda() for array in batch.values())
            with torch.autocast("cuda", half, enabled=self.precision == "bf16"):
                loss = nn.functional.cross_entropy(self.module(x), target)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % EVERY == 0:
                yield float(loss.detach())

    def trained(self) -> nn.Module:
        return copy.deepcopy(self.module)


class Cudnn:
    """golow's plan, in one CUDA graph."""

    def __init__(self, prepared: Prepared, count: int) -> None:
        self.module, self.workload = copy.deepcopy(prepared.module), prepared.workload
        captured = capture(prepared)
        graph = apply(apply(captured.graph, CLEAN_UP), passes(self.workload))
        home = default_cache() / "cudnn"
        gpu = Gpu(home / "kernels")
        engines = Engines(gpu, home / "engines", autotune=True)
        built = Builder(graph, engines, TYPES[self.workload.precision], count).build(
            OPERATORS, finish
        )
        state = {name: tensor.numpy() for name, tensor in self.module.state_dict().items()}
        shapes = {item.target: item.value.shape for item in graph.inputs if item.kind == "input"}
        nothing: Batch = {
            ("input", "0"): np.zeros(shapes["0"], np.float32),
            ("target", "0"): np.zeros(BATCH, np.int64),
        }
        sources = {item.value.name: item for item in graph.inputs}
        self.execution = Execution(
            built, gpu, sources, [nothing] * count, lambda kind, target: state[target]
        )
        for (kind, target), tensor in built.inputs.items():
            if kind in ("parameter", "buffer"):
                self.execution.write(tensor, state[target])
        self.execution.renew_copies()
        self.execution.write_cell("loss_scale", np.array((65536, 0, 0), SCALER))

    def epoch(self, batches: list[Batch], rate: float) -> Iterator[float]:
        self.execution.take_batches(batches)
        where = self.execution.built.inputs[("learning_rate", "")]
        self.execution.write(where, np.array(rate, np.float32))
        for step in range(len(batches)):
            self.execution.run(step)
            if step % EVERY == 0:
                loss = self.execution.built.outputs[("loss", "loss")]
                yield float(self.execution.read(loss))

    def trained(self) -> nn.Module:
        found: dict[str, Tensor] = {}
        for (kind, target), tensor in self.execution.built.inputs.items():
            if kind in ("parameter", "buffer"):
                found[target] = torch.from_numpy(self.execution.read(tensor).copy())
        self.module.load_state_dict(found)
        return copy.deepcopy(self.module).cuda()


if __name__ == "__main__":
    sys.exit(main())

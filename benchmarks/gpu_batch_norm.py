"""Batch norm's two strategies on one GPU, at the shapes of ResNet-50: which is faster from where.

    python benchmarks/gpu_batch_norm.py                     # a minute or two
    python benchmarks/gpu_batch_norm.py --points 8x224      # BATCHxRESOLUTION, with commas between

Prints for each point and dtype the time of all batch norms of a training step, both directions, in
milliseconds: as golow launches them, all at once, all in parts of either width, and by the fastest
of these at each shape. Times are the GPU's own, of eight launches in a CUDA graph on warm memory,
the fastest of four.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

from golow.levels.direct.cudnn.bindings.device import Gpu
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.shared_kernels import batch_norm
from golow.levels.direct.cudnn.shared_kernels.batch_norm import Tiling
from golow.levels.direct.cudnn.shared_kernels.blocks import RELU, Launches, ceiling
from golow.levels.nvidia.memory import Region

POINTS = "8x224,32x224,32x96,256x32,8x96,32x32,256x96,1x224,1024x8,256x224"
REPETITIONS, GRAPHS = 8, 4
MOST_ROWS = 100  # of a thread; beyond, one launch is hopeless
SCRATCH = 64 << 20

Tile = Callable[[str, int, int, bool], tuple[Tiling, bool]]


class Norm(NamedTuple):
    """One of a step's batch norms: in which direction, and whether a residual is added."""

    dtype: str
    rows: int
    channels: int
    backward: bool
    residual: bool


def norms(dtype: str, batch: int, size: int) -> Iterator[Norm]:
    """All of a training step of ResNet-50."""
    layers = [(2, 64, False)]
    stages = ((4, 4, 64, 3), (4, 8, 128, 4), (8, 16, 256, 6), (16, 32, 512, 3))
    for before, after, width, blocks in stages:
        layers += [(before, width, False), *[(after, width, False)] * (2 * blocks - 1)]
        layers += [(after, 4 * width, True)] * blocks + [(after, 4 * width, False)]
    for (scale, channels, residual), backward in product(layers, (False, True)):
        yield Norm(dtype, batch * ceiling(size, scale) ** 2, channels, backward, residual)


def at_once(dtype: str, rows: int, channels: int, _: bool) -> tuple[Tiling, bool]:
    return batch_norm._tiling_at_once(dtype, rows, channels, batch_norm.LARGEST_CLUSTER), True


def in_parts(wide: bool, dtype: str, rows: int, channels: int, _: bool) -> tuple[Tiling, bool]:
    limit, batch_norm.WIDE_BYTES = batch_norm.WIDE_BYTES, 0 if wide else 1 << 62
    tiling = batch_norm._tiling_in_parts(dtype, rows, channels)
    batch_norm.WIDE_BYTES = limit
    return tiling, False


CHOSEN = batch_norm._tiling
WAYS: dict[str, Tile] = {
    "golow's": CHOSEN,
    "at once": at_once,
    "narrow parts": partial(in_parts, False),
    "wide parts": partial(in_parts, True),
}


def launches(norm: Norm, way: str) -> Launches | None:
    """How the norm is launched that way; None where that is hopeless."""
    dtype, rows, channels = norm[:3]
    tiling, alone = WAYS[way](dtype, rows, channels, True)
    if alone and ceiling(rows, tiling.walkers * tiling.parts) > MOST_ROWS:
        return None
    batch_norm._tiling = WAYS[way]
    try:
        if norm.backward:
            return batch_norm.batch_norm_backward(
                dtype, rows, channels, clip=RELU, masked=norm.residual
            )
        return batch_norm.batch_norm(dtype, rows, channels, momentum=0.1, epsilon=1e-5, clip=RELU)
    finally:
        batch_norm._tiling = CHOSEN


class Bench:
    """A GPU with memory for the largest of the images."""

    def __init__(self, largest: int) -> None:
        self.gpu = Gpu(Path(tempfile.mkdtemp()))
        self.images = [Region(largest) for _ in range(5)]
        self.vectors = [Region(1 << 16) for _ in range(8)]
        self.mask, self.scratch = Region(largest // 2), Region(SCRATCH)

    def microseconds(self, norm: Norm, made: Launches) -> float:
        """Of one of them."""
        assert 4 * made.scratch <= SCRATCH
        pointers = self._pointers(norm)

        def repeat() -> None:
            for _ in range(REPETITIONS):
                for kernel in made.kernels:
                    self.gpu.launch(kernel, pointers)

        return self.gpu.time(repeat, GRAPHS) / REPETITIONS / 1e3

    def _pointers(self, norm: Norm) -> list[int]:
        """In the order that `batch_norm` and `batch_norm_backward` state."""
        a, v = ([region.address for region in group] for group in (self.images, self.vectors))
        second, mask = (a[1], self.mask.address) if norm.residual else (0, 0)
        if norm.backward:
            results = [a[3], v[6], v[7], a[4] if norm.residual else 0]
            return [a[0], second, mask, a[2], *v[:4], *results, self.scratch.address]
        return [a[0], second, v[0], v[1], a[2], *v[2:6], mask, self.scratch.address]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--points", default=POINTS)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    given = parser.parse_args()
    points = [tuple(map(int, point.split("x"))) for point in given.points.split(",")]
    steps = {
        (dtype, batch, size): list(norms(dtype, batch, size))
        for dtype, (batch, size) in product(given.dtypes.split(","), points)
    }
    shapes = dict.fromkeys(norm for step in steps.values() for norm in step)
    made = {(norm, way): launches(norm, way) for norm in shapes for way in WAYS}
    bench = Bench(max(norm.rows * norm.channels * ITEM_BYTES[norm.dtype] for norm in shapes))
    bench.gpu.compile(kernel for found in made.values() if found for kernel in found.kernels)
    times = {
        key: bench.microseconds(key[0], found) for key, found in made.items() if found is not None
    }
    print("| |", " | ".join([*WAYS, "fastest"]), "|")
    print("|---" * (len(WAYS) + 2) + "|")
    for (dtype, batch, size), step in steps.items():
        sums = [sum(times.get((norm, way), float("inf")) for norm in step) for way in WAYS]
        sums.append(sum(min(times[n, w] for w in WAYS if (n, w) in times) for n in step))
        print(f"| {dtype} {batch}x{size} |", " | ".join(f"{us / 1e3:.3g}" for us in sums), "|")


if __name__ == "__main__":
    main()

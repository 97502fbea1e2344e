"""The sizes of rounding in each working precision: the constants of the rule."""

from __future__ import annotations

from typing import NamedTuple

from golow.levels.torch.rounded_operations import FLOAT32_KERNELS, Grid


class Rounding(NamedTuple):
    """The error that rounding in a working precision may cause in a correct level.

    size: relative size of one rounding. moves: number of roundings by which weights and inputs are
    moved to measure sensitivity. factor: allowed multiple of eager's error. own: roundings of a
    tensor's own size, for another order of summation. group: roundings of its neighbours' size,
    for tensors that should cancel to zero and whose terms are not known. grid: the numbers to which
    the reference rounds its operations to measure what rounding costs.
    """

    name: str
    size: float
    moves: float
    factor: float
    own: float
    group: float
    grid: Grid

    @property
    def move(self) -> float:
        """The relative distance by which weights and inputs are moved."""
        return self.moves * self.size


# 2^-23 is the relative distance of neighbouring float32 numbers. Another order of summation, as in
# NHWC batch norm, is worth about four of them; eight leave room, and are far below any error that
# a person makes.
FLOAT32 = Rounding("float32", 2.0**-23, 8.0, 2.0, 64.0, 8.0, FLOAT32_KERNELS)
# Here a rounding is half the distance of neighbours, the largest error of one rounding; its root
# mean square is half of that. Weights and inputs are moved by one: sums are float32 at every level,
# and rounding between the layers shows in eager's own error. The grid is that of the precision.
TF32 = Rounding("TF32", 2.0**-11, 0.5, 2.0, 1.0, 1.0, Grid(10, -126))
BF16 = Rounding("bf16", 2.0**-8, 0.5, 3.0, 1.0, 1.0, Grid(7, -126))
FP16 = Rounding("fp16", 2.0**-11, 0.5, 3.0, 1.0, 1.0, Grid(10, -14))

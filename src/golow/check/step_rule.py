"""The rule for a single operation: is its result off by more than its own rounding?

No network is ill-conditioned in one operation, so the limit is that of the operation alone. With
u the size of a rounding, and for each element the larger of its own size and half of the tensor's
root mean square:

    every element is off by at most  largest x u x size,  and their root mean square by  mean x u x
    the root mean square of the sizes

Where terms cancel, a result is smaller than what was added. An operation that does not pass is
computed again with each number that it read moved by about a rounding, and how far each element
moves takes the place of its size. An element that jumps (a floor, a comparison, a relu) passes if
it is what one of the moved computations gives.

Whole numbers must be equal, but for such jumps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from golow.check.rule import FLOAT32, Rounding
from golow.check.step_values import StepValue, evaluated
from golow.lower.ir.operator import vocabulary
from golow.lower.operators.attention import Attention
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.grouped_product import GroupedProduct, GroupedSums
from golow.lower.operators.linear import Linear
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.recurrence import Recurrence
from golow.lower.operators.recurrent_layers import RecurrentLayers
from golow.lower.operators.recurrent_stack import RecurrentStack
from golow.records.comparison import StepError, StepsCheck

DRAWS = 2
"""Moved computations that tell how far an element moves."""
MORE_DRAWS = 16
"""For elements that may have jumped: one in a hundred thousand that may have lands on one side in
all of them."""


class Limit(NamedTuple):
    """Roundings by which an element may be off, and the root mean square of all of them."""

    largest: float
    mean: float


IN_FLOAT32 = Limit(1024.0, 256.0)
"""Sums of float32 add up to thousands of terms one after the other: gradients of convolutions were
off by 780 and 33 at most in the zoo."""
COARSE = Limit(24.0, 6.0)
"""Of TF32 and half precisions: sums are float32's; what is added and the result are rounded."""

SIXTEEN_BITS = ("bfloat16", "float16")
SMALLEST = {"float32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 2.0**-24}
"""By how much a value near zero may be off, by the type in which it is stored."""
LARGEST = {"float16": 65504.0}
"""From which value on the type has infinity instead."""


def summary(errors: Iterable[StepError]) -> StepsCheck:
    """Sum up the errors of all values, in the order in which they are made."""
    found = list(errors)
    wrong = [item for item in found if not item.share <= 1.0]
    return StepsCheck(
        count=len(found),
        failed=len(wrong),
        worst=max(found, key=lambda item: item.share, default=None),
        wrong=tuple(wrong[:MOST_NAMED]),
    )


MOST_NAMED = 8


_PRODUCTS = (
    Attention,
    Convolution,
    GroupedProduct,
    GroupedSums,
    Linear,
    MatrixProduct,
    Recurrence,
    RecurrentLayers,
    RecurrentStack,
)
PRODUCTS = {
    operator.op()
    for operator in vocabulary().values()
    if issubclass(operator.gradient_of or operator, _PRODUCTS)
}
"""Operations that round factors to the working precision, in whatever type they write."""


def judged(value: StepValue, working: Rounding, stored: str) -> StepError:
    """The error of a value as a share of its limit; infinite for another shape. stored: the type in
    which the level holds the value."""
    coarse = stored in SIXTEEN_BITS or value.node.op in PRODUCTS
    share = _share(value, working if coarse else FLOAT32, stored)
    return StepError(
        value=value.name, operation=value.node.op, layer=value.node.module, share=share
    )


def _share(value: StepValue, working: Rounding, stored: str) -> float:
    found, wanted = value.found, value.wanted
    if found.shape != wanted.shape:
        return math.inf
    if not wanted.numel():
        return 0.0
    limit, unit = IN_FLOAT32, working.size
    if working is not FLOAT32:
        limit, unit = COARSE, working.size / 2  # in the mean
    if not wanted.is_floating_point():
        wrong = found.to(wanted.dtype) != wanted
        return 0.0 if _all_jump(value, wrong, unit, 0.0) else math.inf
    found, wanted, odd = _finite(found.double(), wanted, stored)
    if odd is not None and not _all_jump(value, odd, unit, 0.0):
        return math.inf
    error = (found - wanted).abs()
    least = SMALLEST.get(stored, SMALLEST["float32"])
    share = _over(error, _own_size(wanted), limit, unit, least)
    if share > 1.0:
        size = _moves(value, wanted, unit).add_(wanted.abs() * unit / 3)
        size = torch.maximum(size, _rms(size) / 2)
        share = _over(error, size / unit, limit, unit, least)
    if share > 1.0:
        most = torch.full_like(error, limit.largest).mul_(size).add_(least)
        jumped = error > most
        if _all_jump(value, jumped, unit, most):
            rest = error.masked_fill(jumped, 0.0)
            share = _over(rest, size / unit, limit, unit, least)
    return share


def _over(error: Tensor, size: Tensor, limit: Limit, unit: float, least: float) -> float:
    """How far the error is beyond what that many roundings of these sizes explain."""
    each = (error / (size * (limit.largest * unit) + least)).max()
    mean = _rms(error) / (_rms(size) * (limit.mean * unit) + least)
    return float(torch.maximum(each, mean))


def _own_size(wanted: Tensor) -> Tensor:
    return torch.maximum(wanted.abs(), _rms(wanted) / 2)


def _rms(tensor: Tensor) -> Tensor:
    return tensor.square().mean().sqrt()


def _finite(found: Tensor, wanted: Tensor, stored: str) -> tuple[Tensor, Tensor, Tensor | None]:
    """Both with zeros where float64 itself is not finite, or too large for the type and the level
    has infinity; and where they are not the same there."""
    odd = ~torch.isfinite(wanted) | ~torch.isfinite(found)
    if not bool(odd.any()):
        return found, wanted, None
    most = LARGEST.get(stored, math.inf)
    held = torch.where(wanted.abs() > most, wanted.sign() * math.inf, wanted)
    same = (found == held) | (found.isnan() & wanted.isnan())
    return found.masked_fill(odd, 0.0), wanted.masked_fill(odd, 0.0), odd & ~same


def _moves(value: StepValue, wanted: Tensor, unit: float) -> Tensor:
    """How far each element moves: the root mean square over the draws."""
    squares = torch.zeros_like(wanted)
    for moved in _moved(value, unit, DRAWS):
        squares += torch.nan_to_num(moved - wanted).square()
    return squares.div_(DRAWS).sqrt_()


def _all_jump(value: StepValue, wrong: Tensor, unit: float, margin: Tensor | float) -> bool:
    """Whether each of these elements is what a moved computation gives, within a margin."""
    if not bool(wrong.any()):
        return True
    found = value.found if not value.wanted.is_floating_point() else value.found.double()
    for moved in _moved(value, 4 * unit, MORE_DRAWS):
        near = (moved == found) | (moved.isnan() & found.isnan())
        if moved.is_floating_point():
            near |= (moved - found).abs() <= margin
        wrong = wrong & ~near
        if not bool(wrong.any()):
            return True
    return False


def _moved(value: StepValue, unit: float, draws: int) -> Iterator[Tensor]:
    """The value from inputs that are moved by about a rounding."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(draws):
        given = {
            name: tensor * (1 + unit * _normal(tensor, generator))
            if tensor.is_floating_point()
            else tensor
            for name, tensor in value.given.items()
        }
        yield evaluated(value.node, given)[value.place]


def _normal(tensor: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(tensor.shape, generator=generator, dtype=torch.float64)

"""The rule for a single operation: is its result off by more than its own rounding?

No network is ill-conditioned in one operation, so the limit is that of the operation alone. With u
the size of a rounding, and for each element the larger of its own size and half of the tensor's
root mean square:

    every element is off by at most  largest x u x size,  and their root mean square by  mean x u x
    the root mean square of the sizes

Where terms cancel, a result is smaller than what was added. An operation that does not pass is
computed again with each number that it read perturbed by about a rounding, and how far each element
moves takes the place of its size. A product of rounded factors may be compared with what these give
in float64: rounding nearly equal numbers takes what they differ by, which may follow the other
factor, and then it adds up. A product in float32 may also be off by some roundings of the sum of
all terms without their signs: a library may add tens of thousands of them one after the other, and
what it has in between may be larger than each term and the result. An element that jumps (a floor,
a comparison, a relu) passes if it is what one of the moved computations gives. In an update, the
size is that of the change, plus a few float32 roundings of what is changed.

Whole numbers must be equal, but for such jumps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from golow.check.rounding import FLOAT32, FP16, TF32, Rounding
from golow.check.step_values import StepValue, evaluated
from golow.lower.ir.operator import Operator, vocabulary
from golow.lower.operators.attention import Attention
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.grouped_product import GroupedProduct, GroupedSums
from golow.lower.operators.linear import Linear
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.narrow_linear import NarrowLinear
from golow.lower.operators.quantized_linear import QuantizedLinear
from golow.lower.operators.recurrence import Recurrence
from golow.lower.operators.recurrent_layers import RecurrentLayers
from golow.lower.operators.recurrent_stack import RecurrentStack, RecurrentStackBackward
from golow.records.comparison import StepError, StepsCheck

DRAWS = 2
"""Moved computations that tell how far an element moves."""
MORE_DRAWS = 16
"""For elements that may have jumped: one in a hundred thousand that may have lands on one side in
all of them."""
MOST_DRAWS, FEW = 128, 1e-3
"""As many if at most this share of the elements is left after those: of numbers rounded to 8 bits,
hundreds in a large value have jumped, each of which only some draws explain."""
MOST_NAMED = 8
PIECE = 1 << 19  # elements


class Limit(NamedTuple):
    """Roundings by which an element may be off, and the root mean square of all of them."""

    largest: float
    mean: float

    def times(self, factor: float) -> Limit:
        """The limit of this many operations."""
        return Limit(self.largest * factor, self.mean * factor)


IN_FLOAT32 = Limit(1024.0, 256.0)
"""Sums of float32 add up to thousands of terms one after the other: gradients of convolutions were
off by 780 and 33 at most in the zoo."""
COARSE = Limit(24.0, 6.0)
"""Limit in TF32, bf16 and fp16: sums are float32's; what is added and the result are
rounded."""
OF_TERMS = Limit(64.0, 16.0)
"""In float32, of the sum of a product's terms without their signs. The gradient of ResNet-18's
first weight at `onednn`, with 50,000 terms, took half of this."""
UPDATE = Limit(8.0, 4.0)
"""In float32, of what an update changes."""
OF_RECURRENCE = 8.0
"""Times as much: a recurrent network in one operation rounds in every step what the next one
reads."""


def _names(*kinds: type[Operator]) -> set[str]:
    """These operators and their gradients, by their names in graphs."""
    operators = vocabulary().values()
    return {item.op() for item in operators if issubclass(item.gradient_of or item, kinds)}


RECURRENCES = _names(Recurrence, RecurrentLayers, RecurrentStack, RecurrentStackBackward)
PRODUCTS = RECURRENCES | _names(
    Attention, Convolution, GroupedProduct, GroupedSums, Linear, MatrixProduct, NarrowLinear
)
"""Operations that round factors to the working precision, in whatever type they write."""
ON_TENSOR_CORES = PRODUCTS | _names(QuantizedLinear)
"""Operations whose sums may be those of tensor cores where the working precision is not float32."""

LEAST_OF_FLOAT16 = 2.0**-24
"""The smallest number of float16, to which numbers near zero are rounded."""
SMALLEST = {"float16": 8 * LEAST_OF_FLOAT16}
"""Largest error of a value near zero, by the type in which it is stored; float32's least
for all others."""
LARGEST = {"float16": 65504.0}
"""The value from which on the type has infinity instead."""


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


def judged(value: StepValue, working: Rounding, stored: str) -> StepError:
    """The error of a value as a share of its limit; infinite for another shape. stored: the type in
    which the level holds the value."""
    node = value.node
    return StepError(
        value=value.name,
        operation=node.op,
        layer=node.module,
        share=_share(value, _rounding(value, working), stored),
    )


class _Rounded(NamedTuple):
    """This many roundings of this size. unit: of one in the mean; least: of a number near zero;
    digits: binary ones after the first that a product rounds its factors to, 0 if it does not."""

    limit: Limit
    unit: float
    least: float = 0.0
    digits: int = 0


def _rounding(value: StepValue, working: Rounding) -> _Rounded:
    operations = {value.node.op, *value.behind}
    if working is FLOAT32 or (working is TF32 and not operations & ON_TENSOR_CORES):
        limit, unit = IN_FLOAT32, FLOAT32.size
    else:
        limit, unit = COARSE, working.size / 2
    least = LEAST_OF_FLOAT16 if working is FP16 else 0.0
    digits = working.grid.digits if limit is COARSE and operations & PRODUCTS else 0
    wider = limit.times(OF_RECURRENCE) if operations & RECURRENCES else limit
    return _Rounded(wider, unit, least, digits)


def _share(value: StepValue, rounded: _Rounded, stored: str) -> float:
    found, wanted = value.found, value.wanted
    if found.shape != wanted.shape:
        return math.inf
    if not wanted.numel():
        return 0.0
    if not wanted.is_floating_point():
        wrong = found.to(wanted.dtype) != wanted
        return 0.0 if _all_jump(value, wrong, rounded) else math.inf
    smallest = SMALLEST.get(stored, 2.0**-126)
    share = _plain_share(value, rounded, smallest)
    if share <= 1.0:
        return share
    error = _error(found, wanted)
    if not bool(torch.isfinite(error.max())):
        found, wanted, odd = _finite(found.double(), wanted, stored)
        if not _all_jump(value, odd, rounded):
            return math.inf
        error = _error(found, wanted)
    least = _Allowed.of(rounded, _own_size(wanted), smallest)
    if value.before is not None:
        change = _own_size(wanted - value.before)
        least = _Allowed.of(rounded, change, 2.0**-126).beside(
            _Allowed.of(_Rounded(UPDATE, FLOAT32.size), _own_size(wanted), 0.0)
        )
    share = least.share(error)
    if share <= 1.0:
        return share
    moves = _moves(value, wanted, rounded).div_(rounded.unit)
    wider = least.at_least(_Allowed.of(rounded, torch.maximum(moves, _rms(moves) / 2), 0.0))
    share = wider.share(error)
    if share > 1.0 and rounded.unit == FLOAT32.size and value.node.op in PRODUCTS:
        terms = _Allowed.of(_Rounded(OF_TERMS, FLOAT32.size), _without_signs(value), 0.0)
        wider = wider.at_least(terms)
        share = wider.share(error)
    if share > 1.0 and rounded.digits:
        results = _with_rounded_factors(value, rounded.digits)
        share = min(share, *(wider.share(_error(found, result)) for result in results))
    if share > 1.0:
        jumped = error > wider.each
        if _all_jump(value, jumped, rounded, wider.each):
            share = wider.share(error.masked_fill(jumped, 0.0))
    return share


def _plain_share(value: StepValue, rounded: _Rounded, least: float) -> float:
    """The share of what is allowed by the elements' own sizes, and in an update by those of the
    change; NaN if something is not finite. It passes memory twice, in pieces that a cache holds:
    most values need no more."""
    of_sizes = [(value.wanted, rounded, least)]
    if value.before is not None:
        of_sizes = [(value.wanted, _Rounded(UPDATE, FLOAT32.size), 0.0)]
        of_sizes += [(value.wanted - value.before, rounded, 2.0**-126)]
    sizes = [size for size, _, _ in of_sizes]
    halves = [_rms(size) / 2 for size in sizes]
    zero = torch.zeros((), dtype=torch.float64, device=value.wanted.device)
    largest, errors, squares = zero, zero, [zero] * len(of_sizes)
    for found, wanted, *parts in _pieces(value.found, value.wanted, *sizes):
        error, allowed = _error(found, wanted), torch.zeros_like(wanted)
        errors = errors + error.square().sum()
        for place, (_, how, more) in enumerate(of_sizes):
            size = parts[place].abs().clamp_min_(halves[place])
            squares[place] = squares[place] + size.square().sum()
            allowed.add_(size.mul_(how.limit.largest * how.unit)).add_(more)
        largest = torch.maximum(largest, error.div_(allowed).max())
    count = value.wanted.numel()
    mean = sum(
        (square / count).sqrt() * (how.limit.mean * how.unit) + more
        for square, (_, how, more) in zip(squares, of_sizes, strict=True)
    )
    return float(torch.maximum(largest, (errors / count).sqrt() / mean))


def _pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Tensors of one shape in parts of about this many elements."""
    if all(tensor.is_contiguous() for tensor in tensors):
        tensors = tuple(tensor.view(-1) for tensor in tensors)
    rows = max(PIECE * tensors[0].shape[0] // tensors[0].numel(), 1)
    return zip(*(torch.split(tensor, rows) for tensor in tensors), strict=True)


class _Allowed(NamedTuple):
    """The largest error of each element, and the root mean square of all errors."""

    each: Tensor
    mean: Tensor

    @staticmethod
    def of(rounded: _Rounded, size: Tensor, least: float) -> _Allowed:
        """This many roundings of these sizes, and at least so much."""
        limit, unit = rounded.limit, rounded.unit
        each = (size * (limit.largest * unit)).add_(least)
        return _Allowed(each, _rms(size) * (limit.mean * unit) + least)

    def beside(self, other: _Allowed) -> _Allowed:
        """Both at once."""
        return _Allowed(self.each + other.each, self.mean + other.mean)

    def at_least(self, other: _Allowed) -> _Allowed:
        """The larger of both."""
        return _Allowed(torch.maximum(self.each, other.each), torch.maximum(self.mean, other.mean))

    def share(self, error: Tensor) -> float:
        """The error as a share of what is allowed."""
        return float(torch.maximum((error / self.each).max(), _rms(error) / self.mean))


def _error(found: Tensor, wanted: Tensor) -> Tensor:
    return found.to(torch.float64, copy=True).sub_(wanted).abs_()


def _own_size(tensor: Tensor) -> Tensor:
    return tensor.abs().clamp_min_(_rms(tensor) / 2)


def _rms(tensor: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(tensor)
    return norm / math.sqrt(tensor.numel())


def _finite(found: Tensor, wanted: Tensor, stored: str) -> tuple[Tensor, Tensor, Tensor]:
    """Both with zeros where one of them is not finite, and where they are not the same there. What
    is too large for the type is infinite."""
    odd = ~torch.isfinite(wanted) | ~torch.isfinite(found)
    most = LARGEST.get(stored, math.inf)
    held = torch.where(wanted.abs() > most, wanted.sign() * math.inf, wanted)
    same = (found == held) | (found.isnan() & wanted.isnan())
    return found.masked_fill(odd, 0.0), wanted.masked_fill(odd, 0.0), odd & ~same


def _moves(value: StepValue, wanted: Tensor, rounded: _Rounded) -> Tensor:
    """How far each element moves: the root mean square over the draws."""
    squares = torch.zeros_like(wanted)
    for moved in _moved(value, rounded, DRAWS):
        squares += torch.nan_to_num(moved - wanted).square()
    return squares.div_(DRAWS).sqrt_()


def _with_rounded_factors(value: StepValue, digits: int) -> Iterator[Tensor]:
    """The value from numbers with so many binary digits after the first: from the nearest, then
    with the other digits cut off, as some kernels do."""
    for rounding in (torch.round, torch.trunc):
        given = {
            name: _rounded_to(tensor, digits, rounding) if tensor.is_floating_point() else tensor
            for name, tensor in value.given.items()
        }
        yield evaluated(value.node, given)[value.place].to(value.found.device)


def _rounded_to(tensor: Tensor, digits: int, rounding: Callable[[Tensor], Tensor]) -> Tensor:
    mantissa, exponent = torch.frexp(tensor.double())
    return torch.ldexp(rounding(mantissa * 2.0 ** (digits + 1)), exponent - (digits + 1))


def _without_signs(value: StepValue) -> Tensor:
    """The value if every number that it is made of were positive."""
    given = {
        name: tensor.abs() if tensor.is_floating_point() else tensor
        for name, tensor in value.given.items()
    }
    return evaluated(value.node, given)[value.place].abs().to(value.found.device)


def _all_jump(
    value: StepValue, wrong: Tensor, rounded: _Rounded, margin: Tensor | float = 0.0
) -> bool:
    """True if each of these elements is what a moved computation gives, within a margin."""
    if not bool(wrong.any()):
        return True
    found = value.found.double() if value.wanted.is_floating_point() else value.found
    for draw, moved in enumerate(
        _moved(value, rounded._replace(unit=4 * rounded.unit), MOST_DRAWS)
    ):
        near = (moved == found) | (moved.isnan() & found.isnan())
        if moved.is_floating_point():
            near |= (moved - found).abs() <= margin
        wrong = wrong & ~near
        left = int(wrong.sum())
        if left == 0 or (draw >= MORE_DRAWS and left > FEW * wrong.numel()):
            return left == 0
    return False


def _moved(value: StepValue, rounded: _Rounded, draws: int) -> Iterator[Tensor]:
    """The value from inputs that are perturbed by about a rounding."""
    device = value.found.device
    generator = torch.Generator(device).manual_seed(0)

    def moved(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64, device=device)
        return tensor + noise.to(tensor.device).mul_(rounded.unit * tensor.abs() + rounded.least)

    for _ in range(draws):
        given = {name: moved(tensor) for name, tensor in value.given.items()}
        yield evaluated(value.node, given)[value.place].to(device)

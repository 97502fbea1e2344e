"""Does a level compute the same thing? Its tensors against float64, judged by eager's own error.

The rule (docs/correctness.md gives its reasons): the root mean square error of a tensor to the
float64 reference must be within

    FACTOR x e  +  OWN x eps x s  +  GROUP x eps x S

where e is eager's own error in the working precision (at least the share of the tensor that is
typical for eager in this step and kind, since a single tensor can be lucky), s the root mean
square of the reference tensor and S that of all tensors of the same step and kind. Integers must
be equal. A tensor that is missing, has another shape or is not finite fails.

After `assert_closer` in lightning-thunder (thunder/tests/framework.py) and `same` in PyTorch
(torch/_dynamo/utils.py): no farther from float64 than the plain version is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
from safetensors import SafetensorError, safe_open
from torch import Tensor

from golow.record import Check, TensorError

FACTOR = 2.0
FACTOR_SMALL = 3.0  # few elements: the error itself is a noisy estimate
SMALL = 1000
OWN = 64.0  # another order of summation costs this many roundings of the tensor's own size
GROUP = 8.0  # what should cancel to zero leaves roundings of its neighbours' size


class Pair(NamedTuple):
    """A tensor of the reference and another's of the same name, in float64."""

    name: str
    exact: bool  # integers, which must be equal
    wanted: Tensor
    found: Tensor | None


class Expected(NamedTuple):
    """One tensor of the reference: its size, and how far eager is from it."""

    elements: int
    scale: float
    eager_error: float
    typical_error: float
    group_scale: float


class Reference:
    """The float64 tensors and eager's errors to them, by name."""

    def __init__(self, file: Path, eager: Path) -> None:
        self.file = file
        sizes: dict[str, tuple[int, float, float]] = {}
        self.missing: list[str] = []
        for pair in _pairs(file, eager):
            if pair.found is None or pair.found.shape != pair.wanted.shape:
                self.missing.append(pair.name)
            elif not pair.exact:
                error = _rms(pair.found - pair.wanted)
                sizes[pair.name] = (pair.wanted.numel(), _rms(pair.wanted), error)
        shares: dict[str, list[float]] = defaultdict(list)
        squares: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for name, (elements, scale, error) in sizes.items():
            if scale > 0:
                shares[_group(name)].append(error / scale)
            total = squares[_group(name)]
            total[0] += scale * scale * elements
            total[1] += elements
        self.expected = {
            name: Expected(
                elements,
                scale,
                error,
                median(shares[_group(name)] or [0.0]) * scale,
                math.sqrt(squares[_group(name)][0] / max(squares[_group(name)][1], 1)),
            )
            for name, (elements, scale, error) in sizes.items()
        }

    @property
    def finite(self) -> bool:
        """Whether the reference holds numbers at all; a model that overflows gives none."""
        return all(math.isfinite(item.scale) for item in self.expected.values())

    @property
    def rounding(self) -> float:
        """The share of its value by which rounding alone moves the most sensitive kind of tensor
        in eager: what an error must exceed before this workload can show it."""
        return self._typical_share(self.most_sensitive)

    @property
    def most_sensitive(self) -> str:
        """The step and kind of tensor that rounding moves most, e.g. ``0/gradient``."""
        return max({_group(name) for name in self.expected}, key=self._typical_share, default="")

    def _typical_share(self, group: str) -> float:
        return max(
            (
                item.typical_error / item.scale
                for name, item in self.expected.items()
                if item.scale > 0 and _group(name) == group
            ),
            default=0.0,
        )


def check(reference: Reference, file: Path, epsilon: float = 2.0**-23) -> Check:
    """Judge the tensors that a level wrote; epsilon is the working precision's."""
    if not reference.finite or reference.missing:
        return Check(verdict="failed", reason="eager or its float64 reference is not finite")
    tensors: list[TensorError] = []
    try:
        for pair in _pairs(reference.file, file):
            if pair.found is None:
                return Check(verdict="differs", reason=f"{pair.name} is missing")
            if pair.found.shape != pair.wanted.shape:
                shapes = f"{tuple(pair.found.shape)}, not {tuple(pair.wanted.shape)}"
                return Check(verdict="differs", reason=f"{pair.name} has the shape {shapes}")
            tensors.append(_judge(pair, pair.found, reference, epsilon))
    except (SafetensorError, OSError) as error:
        return Check(verdict="failed", reason=f"its outputs cannot be read: {error}")
    worst = max(tensors, key=_badness)
    passed = all(item.passed for item in tensors)
    return Check(
        verdict="match" if passed else "differs",
        reason="" if passed else _reason(worst),
        worst=worst,
        tensors=tuple(tensors),
    )


def confirm(first: Check, second: Check) -> Check:
    """The verdict after a second try on other batches: what failed by an accident of rounding (a
    relu that falls on the other side of zero) does not fail on the same tensor twice."""
    again = {item.name for item in second.tensors if not item.passed}
    both = [item for item in first.tensors if not item.passed and item.name in again]
    if second.verdict == "failed" or (second.verdict == "differs" and not second.tensors) or both:
        return first
    passed = tuple(msgspec.structs.replace(item, passed=True) for item in second.tensors)
    return msgspec.structs.replace(
        second, verdict="match", reason="", worst=max(passed, key=_badness), tensors=passed
    )


def _judge(pair: Pair, found: Tensor, reference: Reference, epsilon: float) -> TensorError:
    error = _rms(found - pair.wanted)
    if pair.exact:
        expected = Expected(pair.wanted.numel(), _rms(pair.wanted), 0.0, 0.0, 0.0)
        limit = 0.0
    else:
        expected = reference.expected[pair.name]
        factor = FACTOR_SMALL if expected.elements < SMALL else FACTOR
        limit = (
            factor * max(expected.eager_error, expected.typical_error)
            + OWN * epsilon * expected.scale
            + GROUP * epsilon * expected.group_scale
        )
    return TensorError(
        name=pair.name,
        elements=expected.elements,
        scale=expected.scale,
        error=error,
        eager_error=expected.eager_error,
        limit=limit,
        passed=error <= limit,  # false for NaN
    )


def _pairs(reference: Path, other: Path) -> Iterator[Pair]:
    """One pair at a time: a large network's tensors need not all fit into memory twice."""
    with safe_open(reference, "pt") as wanted, safe_open(other, "pt") as found:
        names = set(found.keys())
        for name in sorted(wanted.keys()):
            tensor = wanted.get_tensor(name)
            other_tensor = found.get_tensor(name).double() if name in names else None
            exact = not tensor.is_floating_point()
            yield Pair(name, exact, tensor.double(), other_tensor)


def _group(name: str) -> str:
    """``0/gradient`` of ``0/gradient/conv1.weight``."""
    return "/".join(name.split("/", 2)[:2])


def _rms(tensor: Tensor) -> float:
    return float(tensor.square().mean().sqrt()) if tensor.numel() else 0.0


def _badness(item: TensorError) -> float:
    if not math.isfinite(item.error):
        return math.inf
    return item.error / item.limit if item.limit > 0 else item.error


def _reason(worst: TensorError) -> str:
    if not math.isfinite(worst.error):
        return f"{worst.name} is not finite"
    times = worst.error / worst.limit if worst.limit else math.inf
    return (
        f"{worst.name} is off by {worst.error:.2g} (its size is {worst.scale:.2g}, eager is off "
        f"by {worst.eager_error:.2g}): {times:.1f} times what rounding explains"
    )

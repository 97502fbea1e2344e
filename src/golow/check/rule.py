"""The correctness rule: is a level's distance to float64 explained by rounding?

The rule (docs/understand/correctness.md gives its reasons): the root mean square error of a tensor
against the float64 reference must be at most

    factor x max(e, d, r)  +  own x eps x s  +  group x eps x S  +  64 x 2^-23 x Z

where

    e    eager's own error in the working precision, if rounding explains it; else p
    p    how far the reference moves when weights and inputs are perturbed by a few roundings and
         every operation rounds its result
    d    how far the reference moves when weights and inputs, and what is computed within kernels in
         which numbers cancel (the mean of a norm), are perturbed by a few roundings
    r    how far the reference moves when each gradient moves by 32 float32 roundings of the sum of
         its absolute terms
    eps  the size of one rounding
    s    the root mean square of the reference tensor
    S    the root mean square of all reference tensors of the same step and kind
    Z    for a gradient whose terms cancel to zero, the root mean square of the sums of absolute
         terms, and what SGD makes of it in momentum and parameter, Adam in momentum; else 0

e, p and d are at least the share of the tensor that is typical of its step and kind, since a single
tensor can be lucky. A `Rounding` holds the constants. Integers must be equal. A tensor that is
missing, has another shape or is not finite fails. An output may be infinite where eager's is: there
a level must have that infinity, and the errors are those of the other elements.

Eager is judged by the same rule, with p in place of e, so that its limit owes nothing to it; where
a tensor is mostly rounding, that limit is a hundred times as wide. If eager does not pass, no
level's limit owes anything to it.

p, d and r are expensive and can only loosen a limit. A level is judged without d and r first
(`check`), and with them (`recheck`, by a `widened` reference) only if it does not pass; eager is
judged without p first (`Reference.alone`), then with it (`Reference.rounded`).

Of a quantised network, rounding may decide about an activation, and so move the results nearly as
far as the quantisation itself did. A limit is then at most half way from eager's error to the
distance of the network whose activations are not rounded: that one never passes.

The rule follows `assert_closer` in lightning-thunder (thunder/tests/framework.py) and `same` in
PyTorch (torch/_dynamo/utils.py): no farther from float64 than the plain version. d is the backward
error of numerical analysis: the exact answer to a problem a few roundings away is correct. p is the
error of stochastic arithmetic (`golow.levels.torch.rounded_operations`).
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
from safetensors import SafetensorError

from golow.check.rounding import FLOAT32, Rounding
from golow.check.tensor_files import (
    Pair,
    Part,
    error_of,
    pairs,
    same_infinities,
    size_of,
    terms,
    unlike,
)
from golow.levels.torch.gradient_terms import CANCELLED, SUMMATION
from golow.records.comparison import Check, TensorError

# With few elements, eager's own error is a noisy estimate of the effect of rounding; one number,
# such as the loss, can be right by luck.
FACTORS = ((8, 10.0), (1000, 3.0))

# Where rounding moves a tensor by more than this share of its size, its errors have long tails: one
# error of eager's may be this many times as large as those of three draws.
MOSTLY, TAIL = 0.25, 100.0

MANY = 1000  # times a limit, beyond which the number states nothing more

UNPROVABLE = Check(
    verdict="failed",
    reason="rounding alone makes the float64 reference overflow, so nothing can be checked",
)


class Expected(NamedTuple):
    """One tensor of the reference: its size, eager's distance to it, and what rounding explains.

    precision is e of the rule above, or p in its place, before similar tensors are looked at.
    rounding is max(e, d, r), without the factor; d and r are 0 until the reference is widened.
    terms is Z. All are in the tensor's own unit.
    """

    elements: int
    scale: float
    group_scale: float
    eager_error: float
    precision: float
    rounding: float
    terms: float

    @property
    def zero_scale(self) -> float:
        """The size to which an error is put in relation if the exact value is zero: that of the
        terms, or of the neighbours if the working precision cannot tell the tensor from zero. 0 for
        other tensors.
        """
        size = self.terms or (self.group_scale if self.precision >= self.scale else 0.0)
        return size if self.scale <= CANCELLED * size else 0.0


class Reference:
    """The float64 tensors by name, with eager's errors against them. `widened` adds their own
    sensitivity, for levels whose errors eager's alone do not explain; `alone` takes eager's errors
    out of the limits."""

    def __init__(self, file: Path, eager: Path, working: Rounding = FLOAT32) -> None:
        """file: float64 tensors; eager: eager's tensors in the working precision."""
        self.file, self.working = file, working
        self.unlike: list[str] = []
        self._terms = dict(terms(file))
        self._sizes: dict[str, tuple[int, float]] = {}
        self._eager_errors: dict[str, float] = {}
        for pair in pairs(file, eager):
            error = error_of(pair)
            if error is None or (pair.exact and error != 0):
                self.unlike.append(pair.name)
            elif not pair.exact:
                self._eager_errors[pair.name] = error
            if not pair.exact:
                self._sizes[pair.name] = size_of(pair)
        self._precision: Mapping[str, float] = self._eager_errors
        self._others: Mapping[str, float] = {}
        self.expected = self._expected({}, {})

    def widened(self, moved: Iterable[Path], summed: Iterable[Path] = ()) -> Reference:
        """A copy with wider limits. No limit shrinks.

        moved: float64 tensors computed from weights and inputs perturbed by a few roundings, one
        file per draw; the largest draw counts. summed: those computed with moved gradients.
        """
        wider = copy.copy(self)
        wider.expected = self._expected(self._spreads(moved), self._spreads(summed))
        return wider

    def apart(self, other: Path) -> Reference:
        """A copy by whose limits another network does not pass, unless eager is as far away. other:
        its float64 tensors."""
        narrower = copy.copy(self)
        narrower._others = self._spreads([other])
        return narrower

    def alone(self) -> Reference:
        """A copy whose limits owe nothing to eager, and nothing yet to the working precision."""
        return self._with_precision({})

    def rounded(self, draw: Path) -> Reference:
        """A copy with wider limits. draw: float64 tensors computed with rounded operations, from
        weights and inputs perturbed by a few roundings."""
        return self._with_precision(self._spreads([draw], self._precision))

    @property
    def explains_eager(self) -> bool:
        """True if eager's tensors are there and within the limits."""
        within = (error <= self._tail(name) for name, error in self._eager_errors.items())
        return not self.unlike and all(within)  # false for NaN

    def _tail(self, name: str) -> float:
        """The largest error of eager that is not a proof of a fault. Of a tensor that is mostly
        rounding, one draw is often far from three others."""
        item = self.expected[name]
        return self.limit(name) * (TAIL if item.rounding > MOSTLY * item.scale else 1.0)

    @property
    def trusts_eager(self) -> bool:
        """True if eager's errors are in the limits."""
        return self._precision is self._eager_errors

    def _with_precision(self, errors: Mapping[str, float]) -> Reference:
        other = copy.copy(self)
        other._precision = errors
        other.expected = other._expected({}, {})
        return other

    def _spreads(
        self, moved: Iterable[Path], before: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        spreads = dict(before or {})
        for draw in moved:
            for pair in pairs(self.file, draw):
                spread = error_of(pair)
                if spread is not None:
                    spreads[pair.name] = _largest(spread, spreads.get(pair.name, 0.0))
        return spreads

    def limit(self, name: str) -> float:
        """The largest error that passes; 0 for integers, which must be equal."""
        if name not in self.expected:
            return 0.0
        expected, working = self.expected[name], self.working
        factors = (factor for below, factor in FACTORS if expected.elements < below)
        limit = (
            max(working.factor, next(factors, 0.0)) * expected.rounding
            + working.own * working.size * expected.scale
            + working.group * working.size * expected.group_scale
            + SUMMATION * expected.terms
        )
        other, eager = self._others.get(name, 0.0), expected.eager_error
        return min(limit, (eager + other) / 2) if other > eager else limit

    def _expected(
        self, spreads: Mapping[str, float], summed: Mapping[str, float]
    ) -> dict[str, Expected]:
        sizes, errors = self._sizes, self._precision
        groups: dict[str, list[str]] = defaultdict(list)
        for name in sizes:
            groups[_group(name)].append(name)
        expected: dict[str, Expected] = {}
        for names in groups.values():
            squares = sum(sizes[name][0] * sizes[name][1] ** 2 for name in names)
            group_scale = math.sqrt(squares / max(1, sum(sizes[name][0] for name in names)))
            error_share = _typical_share(names, errors, sizes)
            spread_share = _typical_share(names, spreads, sizes)
            for name in names:
                elements, scale = sizes[name]
                error, spread = errors.get(name, 0.0), spreads.get(name, 0.0)
                # How much a gradient cancels is its own: no share of it is typical of the others.
                rounding = _largest(
                    error, spread, error_share * scale, spread_share * scale, summed.get(name, 0.0)
                )
                expected[name] = Expected(
                    elements,
                    scale,
                    group_scale,
                    self._eager_errors.get(name, math.nan),
                    error,
                    rounding,
                    self._terms.get(name, 0.0),
                )
        return expected

    @property
    def finite(self) -> bool:
        """True if the tensors and their limits are finite; those of a model that overflows are
        not."""
        return all(
            math.isfinite(item.scale) and math.isfinite(item.rounding)
            for item in self.expected.values()
        )

    @property
    def cancels(self) -> bool:
        """True if an output is exactly zero. Rounding may move it at another level, or with other
        inputs in a race, and neither eager's error nor its size states by how much."""
        return any(
            item.scale == 0 and item.elements and "/output/" in name
            for name, item in self.expected.items()
        )

    @property
    def rounding(self) -> float:
        """The share of its value by which rounding alone moves the most sensitive kind of tensor.
        This workload can only show errors larger than that."""
        return self._share(self.most_sensitive)

    @property
    def most_sensitive(self) -> str:
        """The step and kind of tensor that rounding moves most, e.g. ``0/gradient``."""
        return max({_group(name) for name in self.expected}, key=self._share, default="")

    def _share(self, group: str) -> float:
        """Median over the group's tensors; some are zero except for rounding and say nothing."""
        shares = [
            item.rounding / item.scale
            for name, item in self.expected.items()
            if item.scale > 0 and not item.zero_scale and _group(name) == group
        ]
        return median(shares) if shares else 0.0


def check(reference: Reference, file: Path, part: Part | None = None) -> Check:
    """Judge the tensors that a level wrote; all, or those of a part of the reference."""
    if not reference.finite:
        return UNPROVABLE
    tensors: list[TensorError] = []
    try:
        for pair in pairs(reference.file, file, part):
            distance, reason = error_of(pair), unlike(pair)
            if distance is None or reason:
                return Check(verdict="differs", reason=reason)
            tensors.append(_judge(pair, distance, reference))
    except (SafetensorError, OSError) as error:
        return Check(verdict="failed", reason=f"its outputs cannot be read: {error}")
    return _verdict(tensors)


def recheck(reference: Reference, found: Check) -> Check:
    """Judge the errors of an earlier check again, by the limits of a widened reference."""
    if not reference.finite:
        return UNPROVABLE
    return _verdict([_with_limit(item, reference.limit(item.name)) for item in found.tensors])


def may_be_rounding(found: Check) -> bool:
    """True if rounding alone may explain a level that differs: no tensor is missing, has another
    shape or is not finite."""
    finite = all(math.isfinite(item.error) for item in found.tensors)
    return found.verdict == "differs" and bool(found.tensors) and finite


def confirm(first: Check, second: Check) -> Check:
    """The verdict after a second try on other batches. An accident of rounding (a relu that falls
    on the other side of zero) does not fail on the same tensor twice. A tensor that is not finite
    is not an accident of rounding."""
    for tried in (first, second):
        if not all(math.isfinite(item.error) for item in tried.tensors):
            return tried
    again = {item.name for item in second.tensors if not item.passed}
    both = [item for item in first.tensors if not item.passed and item.name in again]
    if second.verdict == "failed" or (second.verdict == "differs" and not second.tensors) or both:
        return first
    passed = tuple(msgspec.structs.replace(item, passed=True) for item in second.tensors)
    return msgspec.structs.replace(
        second, verdict="match", reason="", worst=max(passed, key=_badness), tensors=passed
    )


def _judge(pair: Pair, error: float, reference: Reference) -> TensorError:
    expected, infinite = reference.expected.get(pair.name), same_infinities(pair)
    item = TensorError(
        name=pair.name,
        elements=pair.wanted.numel(),
        scale=expected.scale if expected else size_of(pair)[1],
        error=error,
        eager_error=expected.eager_error if expected else 0.0,
        zero_scale=expected.zero_scale if expected else 0.0,
        infinite=0 if infinite is None else int(infinite.sum()),
        limit=0.0,
        passed=False,
    )
    return _with_limit(item, reference.limit(pair.name))


def _with_limit(item: TensorError, limit: float) -> TensorError:
    passed = item.error <= limit  # false for NaN
    return msgspec.structs.replace(item, limit=limit, passed=passed)


def _verdict(tensors: Sequence[TensorError]) -> Check:
    worst = max(tensors, key=_badness)
    passed = all(item.passed for item in tensors)
    return Check(
        verdict="match" if passed else "differs",
        reason="" if passed else _reason(worst),
        worst=worst,
        tensors=tuple(tensors),
    )


def _largest(*numbers: float) -> float:
    """The maximum; NaN if one of the numbers is NaN, which max() would lose."""
    return math.nan if any(math.isnan(number) for number in numbers) else max(numbers)


def _typical_share(
    names: list[str], errors: Mapping[str, float], sizes: Mapping[str, tuple[int, float]]
) -> float:
    """Median over the tensors of error divided by size; some are zero except for rounding."""
    shares = [errors[n] / sizes[n][1] for n in names if n in errors and sizes[n][1] > 0]
    return median(shares) if shares else 0.0


def _group(name: str) -> str:
    """``0/gradient`` of ``0/gradient/conv1.weight``."""
    return "/".join(name.split("/", 2)[:2])


def _badness(item: TensorError) -> float:
    if not math.isfinite(item.error):
        return math.inf
    return item.error / item.limit if item.limit > 0 else item.error


def _reason(worst: TensorError) -> str:
    if not math.isfinite(worst.error):
        return f"{worst.name} is not finite"
    size = f"its size is {worst.scale:.2g}"
    if worst.zero_scale:
        size = f"exact value 0; its terms have magnitude {worst.zero_scale:.2g}"
    eager = f"off by {worst.eager_error:.2g}" if math.isfinite(worst.eager_error) else "not finite"
    off = f"{worst.name} is off by {worst.error:.2g} ({size}, eager is {eager})"
    if not worst.limit:
        return f"{off}, and rounding explains none of it"
    times = worst.error / worst.limit
    shown = f"{times:.1f}" if times < MANY else f"more than {MANY:,}"
    return f"{off}: {shown} times what rounding explains"

"""Verify that a timed training run has left the state to which its steps lead. The losses of timed
steps say little about their backward passes: the check's small learning rate hardly moves them. So
golow requests the parameters when the race is over, a moment that no worker knows beforehand, and
lets eager take the same steps from the same weights, with the same marks. Rounding drives two
training runs apart, so that single values mean nothing after many steps. The distance that the
level's parameters moved in the direction of eager's shows how many of the steps were taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import msgspec
from safetensors import SafetensorError, safe_open
from torch import Tensor

from golow.records.errors import WorkerFailure
from golow.worker.client import Worker
from golow.worker.protocol import Challenge
from golow.workload.bundle import Bundle

LEAST_EXACT, LEAST_COARSE = 0.9, 0.5
"""The level's parameters must have moved by at least this share of what eager's did, and at most by
one over it. Coarse: in bf16, fp16 and TF32, where an optimizer that divides by a gradient's
size also moves what is only rounding."""

LEAST_ALIKE = 0.6
"""Eager takes the steps twice, the second time with another learning rate, and with other masks of
random layers. If the two directions are less similar than this (a cosine), rounding and masks
dominate and nothing can be concluded. Otherwise a level may deviate twice as much."""

OTHER_RATE, OTHER_ROUNDINGS = 2.0**-10, 8
"""Increase of the other rate: this share, or this many roundings of the precision. It moves the
weights more than another order of summation would."""

LEAST_SIGNAL = 100.0
"""Eager's parameters must move by at least this multiple of the effect of rounding."""

ROUNDING, COARSE = 2.0**-24, 2.0**-20
"""Half the distance of neighbours in float32; a precision with larger roundings is coarse."""


class Steps(NamedTuple):
    """Steps that one request asked for. challenge: None where the training run continued."""

    challenge: Challenge | None
    iterations: int


def judge_left(
    level: Worker,
    eager: Worker,
    steps: Sequence[Steps],
    bundle: Bundle,
    folder: Path,
    rounding: float,
) -> str:
    """Return why the state that the level's last steps left is not that of these steps, of which
    the first begin at the bundle's weights; empty if it may be. rounding: the size of one, of the
    precision.

    Raises WorkerFailure if the level does not hand over its state.
    """
    own, *others = files = [folder / f"left-{n}.safetensors" for n in ("level", "eager", "again")]
    coarse = rounding > COARSE
    other_rate = 1 + max(OTHER_RATE, OTHER_ROUNDINGS * rounding)
    try:
        level.result(own)
        try:
            for file, factor in zip(others, (1.0, other_rate), strict=True):
                _make_steps(eager, steps, factor)
                eager.result(file)
        except WorkerFailure:
            return ""  # eager's own next request finds out
        try:
            ways = list(_ways(bundle, own, others))
        except (SafetensorError, OSError, RuntimeError) as error:  # other shapes cannot be compared
            return f"its state cannot be read: {error}"
        return _refute(ways, sum(each.iterations for each in steps), coarse)
    finally:
        for file in files:
            file.unlink(missing_ok=True)


def _make_steps(eager: Worker, steps: Sequence[Steps], factor: float) -> None:
    """Let eager take them, with the learning rate times that factor."""
    for challenge, iterations in steps:
        if challenge is not None:
            rate = challenge.learning_rate * factor
            challenge = msgspec.structs.replace(challenge, learning_rate=rate)
        eager.time(iterations, 0, challenge=challenge)


class _Way(NamedTuple):
    """How a tensor moved: products of the level's way with eager's (the mean of two), of eager's
    two, their squares, and the square of what a step's rounding explains."""

    elements: int
    common: float
    expected: float
    squares: tuple[float, float]
    rounding: float

    @classmethod
    def of(cls, before: Tensor, own: Tensor, others: Sequence[Tensor]) -> _Way:
        start = before.double()
        way, first, last = (t.double() - start for t in (own, others[0], others[-1]))
        return cls(
            start.numel(),
            float((way * (first + last)).sum()) / 2,
            float((first * last).sum()),
            (float(first.square().sum()), float(last.square().sum())),
            ROUNDING**2 * float(start.square().sum()),
        )

    def is_signal(self, steps: int) -> bool:
        """True if eager moved the tensor by more than rounding; not if it is not finite."""
        squares = min(self.squares)
        return math.isfinite(squares) and squares > LEAST_SIGNAL**2 * self.rounding * steps


def _refute(ways: Sequence[_Way], steps: int, coarse: bool) -> str:
    ways = [way for way in ways if way.is_signal(steps)]
    first, last = (sum(way.squares[index] for way in ways) for index in (0, 1))
    alike = sum(way.expected for way in ways) / math.sqrt(first * last) if ways else 0.0
    if alike < LEAST_ALIKE:
        return ""
    least = min(LEAST_COARSE if coarse else LEAST_EXACT, 2 * alike - 1)
    share = _median([(way.common / way.expected, way.elements) for way in ways if way.expected > 0])
    if least <= share <= 1 / least:
        return ""
    return (
        f"its parameters have moved by {share:.2f} of what eager's do in the same {steps} steps, "
        f"at least {least:.2g} is expected"
    )


def _median(shares: Sequence[tuple[float, int]]) -> float:
    """The median of all elements, each with the share of its tensor: a gradient that is zero but
    for rounding, such as that of a bias before a norm, moves its tensor anywhere. NaN counts as 0.
    """
    ordered = sorted((share if math.isfinite(share) else 0.0, count) for share, count in shares)
    half = sum(count for _, count in ordered) / 2
    passed = accumulate(count for _, count in ordered)
    return next(share for (share, _), count in zip(ordered, passed, strict=True) if count >= half)


def _ways(bundle: Bundle, own: Path, others: Sequence[Path]) -> Iterator[_Way]:
    """Ways of all parameters, one after the other: a large network need not fit into memory."""
    with (
        safe_open(bundle.file("weights.safetensors"), "pt") as before,
        safe_open(own, "pt") as found,
        safe_open(others[0], "pt") as first,
        safe_open(others[-1], "pt") as last,
    ):
        # Eager may know a shared parameter by several names.
        for name in sorted(set(found.keys()) & set(first.keys())):
            kind, _, parameter = name.partition("/")
            if kind == "parameter" and (start := before.get_tensor(parameter)).is_floating_point():
                expected = [first.get_tensor(name), last.get_tensor(name)]
                yield _Way.of(start, found.get_tensor(name), expected)

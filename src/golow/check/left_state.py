"""Whether a training that was timed has left the state that its steps lead to.

The losses of timed steps say little of their backward passes: the check's small learning rate
hardly moves them. So golow asks for the parameters when the race is over, which no worker knows
beforehand, and lets eager make the same steps from the same weights, with the same marks. Rounding
drives two trainings apart, so that single values say nothing after many steps. How far the level's
parameters went in the direction in which eager's went says how many of the steps were made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open
from torch import Tensor

from golow.records.errors import WorkerFailure
from golow.worker.client import Worker
from golow.worker.protocol import Challenge
from golow.workload.bundle import Bundle

LEAST_EXACT, LEAST_NOISY = 0.75, 0.5
"""The level's parameters must have moved by at least this share of what eager's did, and at most by
one over it. Noisy: random layers draw other masks, or the precision is coarse, where an optimizer
that divides by a gradient's size also moves what is only rounding."""

LEAST_ALIKE = 0.7
"""With random layers eager makes the steps twice. If the two ways are less alike than this (a
cosine), the masks moved the parameters more than the data did, and nothing can be told."""

LEAST_SIGNAL = 100.0
"""Eager's parameters must move by at least this many times what rounding may move them by."""

ROUNDING = 2.0**-24


class Steps(NamedTuple):
    """Steps that one request asked for. challenge: None where the training went on."""

    challenge: Challenge | None
    iterations: int


def judge_left(
    level: Worker, eager: Worker, steps: Sequence[Steps], bundle: Bundle, folder: Path, noisy: bool
) -> str:
    """Why the state that the level's last steps left is not that of these steps, of which the first
    begin at the bundle's weights; empty if it may be.

    Raises WorkerFailure if the level does not hand over its state.
    """
    random = bool(bundle.workload.random_layers)
    files = [folder / f"left-{name}.safetensors" for name in ("level", "eager", "again")]
    own, *others = files if random else files[:2]
    try:
        level.result(own)
        try:
            for file in others:
                _make_steps(eager, steps)
                eager.result(file)
        except WorkerFailure:
            return ""  # eager's own next request finds out
        return _compare(bundle, own, others, sum(each.iterations for each in steps), noisy)
    finally:
        for file in files:
            file.unlink(missing_ok=True)


def _make_steps(eager: Worker, steps: Sequence[Steps]) -> None:
    for challenge, iterations in steps:
        eager.time(iterations, 0, challenge=challenge)


class _Ways(NamedTuple):
    """Sums over all parameters of products of the ways that they went: the level's with eager's
    (the mean of two), eager's with eager's (of one with the other), their squares, and that of what
    rounding explains."""

    common: float = 0.0
    expected: float = 0.0
    squares: tuple[float, float] = (0.0, 0.0)
    rounding: float = 0.0

    def with_parameter(self, before: Tensor, own: Tensor, others: Sequence[Tensor]) -> _Ways:
        start = before.double()
        way, first, last = (t.double() - start for t in (own, others[0], others[-1]))
        return _Ways(
            self.common + float((way * (first + last)).sum()) / 2,
            self.expected + float((first * last).sum()),
            (
                self.squares[0] + float(first.square().sum()),
                self.squares[1] + float(last.square().sum()),
            ),
            self.rounding + ROUNDING**2 * float(start.square().sum()),
        )

    def share(self, steps: int) -> float | None:
        """How far the level went of what eager did; None if it cannot be told."""
        lengths = math.sqrt(self.squares[0] * self.squares[1])
        moved = lengths > LEAST_SIGNAL**2 * self.rounding * steps
        if math.isfinite(lengths) and moved and self.expected >= LEAST_ALIKE * lengths:
            return self.common / self.expected
        return None


def _compare(bundle: Bundle, own: Path, others: Sequence[Path], steps: int, noisy: bool) -> str:
    ways = _Ways()
    try:
        with (
            safe_open(bundle.file("weights.safetensors"), "pt") as before,
            safe_open(own, "pt") as found,
            safe_open(others[0], "pt") as first,
            safe_open(others[-1], "pt") as last,
        ):
            # Eager may know a shared parameter by several names.
            for name in sorted(set(found.keys()) & set(first.keys())):
                kind, _, parameter = name.partition("/")
                way = found.get_tensor(name)
                if kind != "parameter" or not way.is_floating_point():
                    continue
                expected = [first.get_tensor(name), last.get_tensor(name)]
                if way.shape != expected[0].shape:
                    return f"{name} has the shape {tuple(way.shape)}"
                ways = ways.with_parameter(before.get_tensor(parameter), way, expected)
    except (SafetensorError, OSError) as error:
        return f"its state cannot be read: {error}"
    share, least = ways.share(steps), LEAST_NOISY if noisy else LEAST_EXACT
    if share is None or least <= share <= 1 / least:
        return ""
    return (
        f"its parameters have moved by {share:.2f} of what eager's do in the same {steps} steps, "
        f"at least {least:g} is expected"
    )

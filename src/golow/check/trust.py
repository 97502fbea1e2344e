"""Decides whether eager can be trusted. It is checked like every level, but by limits that do not
depend on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from golow.check.rule import Reference


class Draws(Protocol):
    """Makes the reference run on weights and inputs that are perturbed by a few roundings."""

    def __call__(self, *, rounded: bool) -> Iterator[Path]:
        """Yield the tensors of each draw. rounded: every operation rounds its result, too."""


class Trusted(NamedTuple):
    """The reference that levels are compared with first, and if eager is wrong the one with wider
    limits, which was needed to find that out."""

    reference: Reference
    wider: Reference | None = None


def trusted(reference: Reference, draws: Draws, summed: Iterable[Path] = ()) -> Trusted:
    """Take eager's errors out of the limits if rounding does not explain them.

    Nothing is drawn for an eager that is nearly exact, and no more than is needed for any other.
    summed: the float64 tensors of a training run with moved gradients. If roundings alone make the
    reference overflow, a finite eager cannot be called wrong.
    """
    alone = reference.alone()
    if alone.explains_eager:
        return Trusted(reference)
    for draw in draws(rounded=True):
        alone = alone.rounded(draw)
        if alone.explains_eager:
            return Trusted(reference)
    wider = alone.widened(draws(rounded=False), summed)
    if wider.explains_eager or (reference.finite and not wider.finite):
        return Trusted(reference)
    return Trusted(alone, wider)

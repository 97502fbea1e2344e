"""The error of a single logit that rounding explains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from golow.check.rounding import Rounding
from golow.worker.text_program import Moved

DRAWS = 3  # of the reference, moved by roundings
OF_ONE_LOGIT = 3.0
"""Factor between the limit of a single logit and the limit of all. The latter is at least twice the
root mean square effect of rounding; the former is six times that effect."""
TIMES_RMS = 2 * OF_ONE_LOGIT


class ErrorLimit(NamedTuple):
    """everywhere: up to which rounding explains the choice of another token, as measured on forced
    texts. working: the precision of the levels."""

    everywhere: float
    working: Rounding

    def moves(self) -> Iterator[Moved]:
        """The ways in which rounding moves the reference."""
        return moves(self.working, rounded=True)


def moves(working: Rounding, *, rounded: bool) -> Iterator[Moved]:
    """Weights that are perturbed by a few roundings. rounded: operations round, too."""
    digits = working.grid.digits if rounded else 0
    for seed in range(DRAWS):
        yield Moved(seed=seed, share=working.move, digits=digits, least=working.grid.least)

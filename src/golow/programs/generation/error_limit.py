"""The error of a single logit that rounding explains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from golow.check.rounding import Rounding
from golow.worker.text_program import Moved

DRAWS = range(3)
"""Seeds of the moves of the reference by roundings."""
FURTHER_DRAWS = range(3, 12)
"""Seeds of further moves, where the first do not explain a token: the root mean square of three
normal numbers is less than half of the true one in 14% of cases, that of twelve in 0.4%."""
OF_ONE_LOGIT = 3.0
"""Factor between the limit of a single logit and the limit of all. The latter is at least twice the
root mean square effect of rounding; the former is six times that effect."""
TIMES_RMS = 2 * OF_ONE_LOGIT


class ErrorLimit(NamedTuple):
    """everywhere: up to which rounding explains the choice of another token, as measured on forced
    texts. working: the precision of the levels."""

    everywhere: float
    working: Rounding

    def moves(self, seeds: Sequence[int]) -> Iterator[Moved]:
        """The ways in which rounding moves the reference."""
        return moves(self.working, rounded=True, seeds=seeds)


def moves(working: Rounding, *, rounded: bool, seeds: Sequence[int] = DRAWS) -> Iterator[Moved]:
    """Weights that are perturbed by a few roundings. rounded: operations round, too."""
    digits = working.grid.digits if rounded else 0
    for seed in seeds:
        yield Moved(seed=seed, share=working.move, digits=digits, least=working.grid.least)

"""The records of an audit."""

from __future__ import annotations

from typing import Literal

from golow.records.comparison import RaceSummary, Ratio, Run, VerdictName, Word
from golow.records.record import Record
from golow.records.workload import Workload

Finding = Word | Literal["refuted"]
"""Verdict of an audit on an alternative: the word for its ratio, or ``refuted`` if its first race
called it faster or slower and the second race, in new processes, did not."""


class Price(Record, frozen=True, kw_only=True):
    """One alternative at one level, and its effect.

    choice, alternative: their names. now: the value in effect by default, as the level's worker
    read it; empty if it cannot be read. value: the value with the alternative. run: of the level
    with the alternative in the first race; its ratio is over the same level without it. evidence:
    the p-value of a difference, corrected for all questions that the level's race asked. confirmed:
    the ratio of a second race, in new processes; None if there was none. finding: the conclusion.
    effect: the ratio to quote, which is that of the second race where there was one.
    """

    choice: str
    alternative: str
    now: str
    value: str
    run: Run
    evidence: float | None = None
    confirmed: Ratio | None = None
    finding: Finding = "unclear"

    @property
    def effect(self) -> Ratio | None:
        """The ratio to quote: that of the second race if there was one, which is free of the first
        race's luck."""
        return self.confirmed or self.run.ratio

    @property
    def verdict(self) -> VerdictName:
        """Verdict of the check."""
        return self.run.check.verdict


class Untried(Record, frozen=True, kw_only=True):
    """An alternative that was not raced, and why."""

    choice: str
    alternative: str
    reason: str


class InForce(Record, frozen=True, kw_only=True):
    """A choice at a level: its name, and the value in effect."""

    choice: str
    value: str


class Combination(Record, frozen=True, kw_only=True):
    """The best combination found by a greedy search, raced again against the defaults.
    alternatives: their names, in the order of their choice. level: name of the level with all of
    them. run: of that last race, in new processes; its ratio is over the level's defaults. steps:
    how many races the search took.
    """

    alternatives: tuple[str, ...]
    level: str
    run: Run
    steps: int


class AuditedLevel(Record, frozen=True, kw_only=True):
    """One level: its own run, every choice in effect, and the cost of every alternative."""

    level: str
    run: Run
    in_force: tuple[InForce, ...] = ()
    prices: tuple[Price, ...] = ()
    untried: tuple[Untried, ...] = ()
    races: tuple[RaceSummary, ...] = ()
    best: Combination | None = None

    def difference(self, price: Price, name: str) -> float | None:
        """How much more of a memory or life-cycle figure the alternative has, in its unit."""
        own, other = self.run.quantity(name), price.run.quantity(name)
        return None if own is None or other is None else other - own


class Audit(Record, frozen=True, kw_only=True):
    """The choices of several levels on one workload.

    created: time of the record, ISO 8601. interrupted: by Ctrl-C; the partial results are kept.
    """

    id: str
    created: str
    workload: Workload
    levels: tuple[AuditedLevel, ...]
    notes: tuple[str, ...] = ()
    quick: bool = False
    interrupted: bool = False

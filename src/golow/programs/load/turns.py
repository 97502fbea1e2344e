"""The order of a load test: levels take turns, so that changes of the machine affect all of
them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial

from golow.observer import Observer
from golow.programs.load import search
from golow.programs.load.early_stopping import allowing_none
from golow.programs.load.level_under_load import Run
from golow.programs.load.load_record import LoadPlan, Peak, Scenario
from golow.programs.load.tested_level import TestedLevel
from golow.programs.load.verdict import rate_of, rate_ratio

LEAST_ROUNDS = 5  # of a search: `golow.measure.words.LEAST_ROUNDS`


class _TooShort(Exception):
    """A run had too few requests for any conclusion, and one at a lower rate has fewer."""


class Turns:
    """Runs of all correct levels, in random order in each round."""

    def __init__(self, levels: Sequence[TestedLevel], plan: LoadPlan, observer: Observer) -> None:
        self._levels, self._plan, self._observer = levels, plan, observer
        self._least = allowing_none(plan.percentile)
        self._random = random.Random(plan.seed)  # noqa: S311 - an order, not a secret

    def take(self) -> None:
        """Every scenario, and every rate that was given, in rounds."""
        for number in range(1, self._plan.repeats + 1):
            for scenario, rate in self._kinds():
                for level in self._shuffled():
                    asked = Run(scenario, rate or level.throughput, self._plan.seconds, number)
                    of = f"round {number} of {self._plan.repeats}"
                    self._observer.stage(f"{of}: {level.name}, {_text(asked)}")
                    level.run(asked)

    def search(self) -> None:
        """The highest rate of every level that meets the latency limit: roughly, then in rounds."""
        near: dict[str, float] = {}
        for level in self._shuffled():
            found = self._searched(level, 0, level.throughput)
            if found is not None:
                near[level.name] = found
            elif level.peak is None:
                level.peak = Peak(reason=self._why_none(level))
        rounds: dict[str, list[float]] = {name: [] for name in near}
        try:
            for number in range(1, max(LEAST_ROUNDS, self._plan.repeats) + 1):
                for level in self._shuffled():
                    if level.name in near:
                        rate = self._searched(level, number, near[level.name])
                        rounds[level.name] += [rate] if rate is not None else []
        finally:  # also what Ctrl-C leaves
            self._conclude(rounds)

    # ------------------------------------------------------------ implementation

    def _searched(self, level: TestedLevel, number: int, start: float) -> float | None:
        """The highest rate of a level: roughly, or in a round. None if there is none, or if the
        level failed meanwhile."""
        holds = partial(self._holds, level, number=number)
        try:
            if number:
                found = search.again(holds, start, self._random)
            else:
                found = search.roughly(holds, start)
        except _TooShort as short:
            if not number:
                level.peak = Peak(reason=f"unclear: {short}")
            return None
        return found if level.is_loaded else None

    def _conclude(self, rounds: dict[str, list[float]]) -> None:
        """Set the levels' rates, with their ratios to the first level's."""
        first = next((rounds[one.name] for one in self._levels if one.name in rounds), [])
        for level in self._levels:
            own = rounds.get(level.name)
            if own and level.is_loaded:
                whole = min(len(own), len(first))
                level.peak = Peak(
                    rate=rate_of(own, self._plan.seed),
                    rounds=tuple(own),
                    ratio=rate_ratio(own[:whole], first[:whole], self._plan.seed),
                )

    def _holds(self, level: TestedLevel, rate: float, number: int = 0) -> bool:
        """Return True if a level meets the latency limit at a rate; false where that is unclear."""
        asked = Run("server", rate, self._plan.seconds, number)
        of = f"round {number} of the search: " if number else ""
        self._observer.stage(f"{of}{level.name}, {_text(asked)}")
        found = level.run(asked)
        if found is not None and found.outcome == "unclear" and found.answered < self._least:
            raise _TooShort(found.reason)
        return found is not None and found.outcome == "held"

    def _why_none(self, level: TestedLevel) -> str:
        runs = [run for run in level.record().runs if run.scenario == "server"]
        if runs and all(run.outcome == "unclear" for run in runs):
            return f"unclear: {runs[-1].reason}"
        return runs[-1].reason if runs else "it was not loaded"

    def _kinds(self) -> Iterator[tuple[Scenario, float | None]]:
        """The runs of a round, without those of a search."""
        for scenario in self._plan.scenarios:
            if scenario == "server":
                yield from ((scenario, rate) for rate in self._plan.rates)
            else:
                yield scenario, None

    def _shuffled(self) -> list[TestedLevel]:
        loaded = [level for level in self._levels if level.is_loaded]
        self._random.shuffle(loaded)
        return loaded


def _text(asked: Run) -> str:
    if asked.scenario == "server":
        return f"{asked.rate:.3g} requests/s"
    return asked.scenario

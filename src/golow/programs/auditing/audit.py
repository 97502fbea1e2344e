"""The whole program: at each level, try every alternative to the default settings. A level and the
same level with one alternative are entrants of one race, so that disturbances affect both.
Alternatives that the first race finds faster or slower are raced again in new processes: the
largest of many effects is partly luck (the winner's curse), and two processes of one program differ
a little for as long as they live. Only findings of both races are called faster or slower, and the
second ratio is quoted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from golow.levels import ladder
from golow.levels.ladder import BASELINE, ChosenLevel
from golow.levels.level_selection import require_any
from golow.levels.starter import Starter
from golow.measure import stats
from golow.measure.stats import CONFIDENCE
from golow.measure.words import word
from golow.programs.auditing.audit_record import (
    Audit,
    AuditedLevel,
    Combination,
    Finding,
    InForce,
    Price,
)
from golow.programs.auditing.candidates import Candidate, candidates
from golow.programs.auditing.observer import AuditObserver, Pace
from golow.programs.comparison.bench import Bench, Raced, open_bench
from golow.programs.comparison.compare import require_sense
from golow.programs.comparison.recording import recorded
from golow.programs.comparison.settings import ComparisonSettings
from golow.records.comparison import RaceSummary, Ratio, Run
from golow.records.errors import GolowError, Unfinished
from golow.storage.names import LONGEST_PART, file_name
from golow.worker.time_limits import Limits
from golow.worker.turn import Turn
from golow.workload.request import Request

SECONDS = 5.0  # of a race for each of its entrants
BASES = 2  # entrants of a race that are not alternatives: eager and the level


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """levels: names; None means the default levels, without variants, which are choices. quick:
    only the likeliest choices. best: also search for the best combination. seconds: race time per
    entrant. cache, limits, turn: as in a comparison."""

    levels: Sequence[str] | None = None
    quick: bool = False
    best: bool = False
    seconds: float = SECONDS
    cache: Path | None = None
    limits: Limits | None = None
    turn: Turn | None = None


def audit(request: Request, settings: AuditSettings, observer: AuditObserver) -> Audit:
    """Measure the cost of the choices at every level.

    After Ctrl-C the audit has the partial results; without any, KeyboardInterrupt is raised. Raises
    `GolowError` for errors that the caller can fix, and `Unfinished` for one after a level was
    audited. An error in a level, or with an alternative, is recorded as its result.
    """
    _require_sense(settings)
    racing = ComparisonSettings(
        time_limit=settings.seconds,
        brief=True,
        cache=settings.cache,
        limits=settings.limits,
        turn=settings.turn,
    )
    require_sense(request, racing)
    levels = _levels(request, settings.levels)
    created = datetime.now(UTC)
    found: list[AuditedLevel] = []
    try:
        with (
            Starter(settings.limits, settings.turn) as starter,
            open_bench(request, racing, observer, starter) as bench,
        ):
            interrupted = not _take(levels, bench, settings, observer, found)
            if interrupted and not found:
                raise KeyboardInterrupt
    except GolowError as error:
        if not found:
            raise
        raise Unfinished(error, _recorded(bench, settings, created, found, True)) from error
    return _recorded(bench, settings, created, found, interrupted)


def _take(
    levels: Sequence[ChosenLevel],
    bench: Bench,
    settings: AuditSettings,
    observer: AuditObserver,
    found: list[AuditedLevel],
) -> bool:
    """Add the result of every level to those found; false after Ctrl-C."""
    pace = Pace(sum(_entrants(level, bench, settings) for level in levels), settings.seconds)
    try:
        for number, level in enumerate(levels, 1):
            place = f"{number} of {len(levels)}"
            auditor = _Auditor(bench, level, settings, place, observer, pace)
            for audited in auditor.steps():
                found[number - 1 :] = [audited]
    except KeyboardInterrupt:
        return False
    return True


def _recorded(
    bench: Bench,
    settings: AuditSettings,
    created: datetime,
    found: Sequence[AuditedLevel],
    interrupted: bool,
) -> Audit:
    model = file_name(bench.workload.model, LONGEST_PART)
    return Audit(
        id=f"{created:%Y%m%d-%H%M%S}-{model}-{bench.workload.mode}-audit",
        created=created.isoformat(timespec="seconds"),
        workload=bench.workload,
        levels=tuple(found),
        notes=tuple(bench.notes),
        quick=settings.quick,
        interrupted=interrupted,
    )


def _require_sense(settings: AuditSettings) -> None:
    if not 0 <= settings.seconds < math.inf:
        raise GolowError(
            f"{settings.seconds} seconds for each entrant of a race are not allowed",
            "use --seconds 5 or so.",
        )
    if settings.levels is not None and not settings.levels:
        raise GolowError("there is no level to audit", "name at least one level.")


def _entrants(level: ChosenLevel, bench: Bench, settings: AuditSettings) -> int:
    """Number of entrants of the first race at this level, as far as it is known before the worker
    reports."""
    return len(candidates(level, bench.workload, {}, settings.quick)[0]) + BASES


def _levels(request: Request, names: Sequence[str] | None) -> list[ChosenLevel]:
    where = request.mode, request.device
    asked = ladder.listed(names)
    if asked is None:
        asked = list(dict.fromkeys(n.partition(":")[0] for n in ladder.default(*where)))
    chosen = [ladder.choose(name, *where) for name in asked]
    found = list({level.name: level for level in chosen}.values())
    require_any(names, found, request.device)
    return found


class _Auditor:
    """The audit of one level."""

    def __init__(
        self,
        bench: Bench,
        level: ChosenLevel,
        settings: AuditSettings,
        place: str,
        observer: AuditObserver,
        pace: Pace,
    ) -> None:
        self._bench, self._level, self._settings, self._place = bench, level, settings, place
        self._observer, self._pace = observer, pace
        self._races: list[RaceSummary] = []

    def steps(self) -> Iterator[AuditedLevel]:
        """Results of the level after each race; each one replaces the one before."""
        bench, level = self._bench, self._level
        bench.observer.stage(f"{level.name} ({self._place}): reading the settings in effect")
        in_force = bench.in_force(level)
        tried, untried = candidates(level, bench.workload, in_force, self._settings.quick)
        planned = _entrants(level, bench, self._settings)
        self._pace.more(len(tried) + BASES - planned)
        runs, raced = self._race(tried, f"{len(tried)} alternatives")
        audited = AuditedLevel(
            level=level.name,
            run=runs[level.name],
            in_force=tuple(InForce(choice=c, value=v) for c, v in sorted(in_force.items())),
            prices=tuple(_priced(tried, runs, raced, in_force)),
            untried=tuple(untried),
            races=tuple(self._races),
        )
        yield audited
        if raced.interrupted:
            raise KeyboardInterrupt
        named = [one for one in tried if _is_named(_of(audited, one))]
        if named:
            audited = self._confirmed(audited, named)
            yield audited
        if self._settings.best:
            best = self._best(audited, tried)
            yield msgspec.structs.replace(audited, best=best, races=tuple(self._races))

    # ------------------------------------------------------------ races

    def _race(
        self,
        tried: Sequence[Candidate],
        what: str,
        against: Mapping[str, str] | None = None,
        longer: float = 0.0,
    ) -> tuple[dict[str, Run], Raced]:
        """Race the level and these in new processes; their runs by name. longer: the time that they
        are known to take together beyond one share each, in units of the level's time. Raises
        KeyboardInterrupt if it was interrupted before it timed anything."""
        bench, level = self._bench, self._level
        self._observer.left(self._pace.left())
        bench.observer.stage(f"{level.name} ({self._place}): {what}")
        baseline = ladder.choose(BASELINE, bench.workload.mode, bench.workload.device)
        chosen = {one.name: one for one in (baseline, level, *(c.level for c in tried))}
        pairs = {one.level.name: level.name for one in tried} | dict(against or {})
        bench.settings = replace(
            bench.settings,
            time_limit=self._settings.seconds * (len(chosen) + longer),
            interval=0.01,
        )
        raced = bench.race(
            list(chosen.values()), against=pairs, necessary=stats.rounds_for(len(tried))
        )
        comparison = recorded(bench.workload, bench.settings, raced, ())
        if raced.interrupted and all(run.time is None for run in comparison.runs):
            raise KeyboardInterrupt
        self._pace.raced(len(tried) + BASES)
        self._races.append(comparison.race)
        return {run.level: run for run in comparison.runs}, raced

    def _whole_race(
        self,
        tried: Sequence[Candidate],
        what: str,
        against: Mapping[str, str] | None = None,
        longer: float = 0.0,
    ) -> dict[str, Run]:
        """Runs of a race that proves nothing unless it ends. Raises KeyboardInterrupt if it was
        interrupted."""
        runs, raced = self._race(tried, what, against, longer)
        if raced.interrupted:
            raise KeyboardInterrupt
        return runs

    def _confirmed(self, audited: AuditedLevel, named: Sequence[Candidate]) -> AuditedLevel:
        """Race again, in new processes, those that the first race found faster or slower."""
        self._pace.more(len(named) + BASES)
        # An alternative that takes 12 times as long would leave the others too few rounds.
        longer = sum(max(0.0, _effect(_of(audited, one)) - 1) for one in named)
        what = f"{len(named)} of them again, in new processes"
        runs = self._whole_race(named, what, longer=longer)
        again = {one.level.name: runs[one.level.name].ratio for one in named}
        prices = [
            _seen_twice(price, again[price.run.level]) if price.run.level in again else price
            for price in audited.prices
        ]
        return msgspec.structs.replace(audited, prices=tuple(prices), races=tuple(self._races))

    # ------------------------------------------------------------ the best combination

    def _best(self, audited: AuditedLevel, tried: Sequence[Candidate]) -> Combination | None:
        """Add alternatives as long as each makes the level faster, the largest effect first; then
        race the combination against the defaults from the beginning."""
        taken: list[Candidate] = []
        current, steps = self._level, 0
        for candidate in _promising(audited, tried):
            try:
                where = self._bench.workload.mode, self._bench.workload.device
                larger = current.with_choices([candidate.alternative.name], *where)
            except GolowError:  # it contradicts what is taken already
                continue
            if taken:
                self._pace.more(2 + BASES)
                entrants = [Candidate(one, *candidate[1:]) for one in (current, larger)]
                runs = self._whole_race(
                    entrants, f"adding {candidate.alternative.name}", {larger.name: current.name}
                )
                steps += 1
                ratio = runs[larger.name].ratio
                if ratio is None or ratio.word != "faster":
                    continue
            current = larger
            taken.append(candidate)
        if not taken:
            return None
        self._pace.more(1 + BASES)
        runs = self._whole_race(
            [Candidate(current, *taken[0][1:])], "the best combination against the defaults"
        )
        return Combination(
            alternatives=tuple(one.alternative.name for one in taken),
            level=current.name,
            run=runs[current.name],
            steps=steps + 1,
        )


def _priced(
    tried: Sequence[Candidate], runs: Mapping[str, Run], raced: Raced, in_force: Mapping[str, str]
) -> Iterator[Price]:
    """The cost of each alternative in the first race; the p-values are corrected together."""
    evidences = []
    for candidate in tried:
        pairs = [race.paired(candidate.level.name) for race in raced.races]
        own, base = max(pairs, key=lambda pair: len(pair[0]), default=([], []))
        evidences.append(stats.evidence(own, base))
    for candidate, evidence in zip(tried, stats.adjusted(evidences), strict=True):
        run = runs[candidate.level.name]
        same = run.ratio is not None and run.ratio.word == "same"
        certain = evidence < 1 - CONFIDENCE
        yield Price(
            choice=candidate.choice.name,
            alternative=candidate.alternative.name,
            now=in_force.get(candidate.choice.name, ""),
            value=candidate.alternative.value,
            run=run,
            evidence=evidence if run.ratio is not None else None,
            finding=run.ratio.word if run.ratio and certain else "same" if same else "unclear",
        )


def _seen_twice(price: Price, again: Ratio | None) -> Price:
    """The cost with the ratio of its second race, which must agree with the first. A second race of
    too few rounds neither agrees nor refutes."""
    finding: Finding = "refuted"
    if again is None or word(again.low, again.high) == price.finding:
        finding = price.finding if again and again.word == price.finding else "unclear"
    return msgspec.structs.replace(price, confirmed=again, finding=finding)


def _is_named(price: Price) -> bool:
    return price.finding in ("faster", "slower")


def _of(audited: AuditedLevel, candidate: Candidate) -> Price:
    return next(p for p in audited.prices if p.run.level == candidate.level.name)


def _promising(audited: AuditedLevel, tried: Sequence[Candidate]) -> list[Candidate]:
    """The alternatives that make the level faster, the largest effect first, one per choice."""
    faster = [one for one in tried if _of(audited, one).finding == "faster"]
    ordered = sorted(faster, key=lambda one: _effect(_of(audited, one)))
    return list({one.choice.name: one for one in reversed(ordered)}.values())[::-1]


def _effect(price: Price) -> float:
    return price.effect.value if price.effect else 1.0

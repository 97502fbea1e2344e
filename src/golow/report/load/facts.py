"""The figures of a load test's reports: a row for each level, scenario and rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean, median
from typing import NamedTuple

from golow.measure.stats import median_interval
from golow.programs.load.early_stopping import PERCENTILES, Quoted
from golow.programs.load.load_record import (
    LevelLoad,
    LoadPlan,
    LoadRun,
    LoadTest,
    Outcome,
    Scenario,
    ServedBatch,
    Timed,
)
from golow.programs.load.verdict import Apart, apart_in_turn, pooled, together


class Spread(NamedTuple):
    """One of the times of requests. percentiles: by share; None if runs did not end. apart: verdict
    against the first level, by share."""

    percentiles: dict[float, Quoted | None]
    apart: dict[float, Apart]


class Row(NamedTuple):
    """A level in a scenario, at a rate; of all its runs in turn together.

    spreads: of each time that the plan limits. tokens: of each text, if answers are texts.
    throughput: answers per second, with the ends of its interval if there are several rounds.
    batch: mean samples in a batch. padding: tokens or samples that ran and belong to no sample, as
    a share. queue: most requests that stayed behind a batch. dropped: requests without an answer.
    busy: the time in which the level ran, as a share, of all contexts. waiting, overhead: median
    seconds in the queue, and outside queue and level. late: 99th percentile of seconds by which the
    generator was late.
    """

    level: str
    scenario: Scenario
    rate: float | None
    outcome: Outcome
    reason: str
    requests: int
    spreads: dict[Timed, Spread]
    tokens: int
    throughput: float | None
    throughput_ends: tuple[float, float] | None
    batch: float | None
    padding: float | None
    queue: int | None
    dropped: int
    busy: float | None
    waiting: float | None
    overhead: float | None
    late: float | None
    joules: float | None

    @property
    def tokens_per_second(self) -> float | None:
        """Generated tokens per second; None if answers are not texts."""
        return self.throughput * self.tokens if self.throughput and self.tokens else None


def rows(found: LoadTest, scenario: Scenario) -> Iterator[Row]:
    """The rows of a scenario: by rate, then by level."""
    rates: Sequence[float | None] = found.plan.rates if scenario == "server" else (None,)
    for rate in rates:
        first: list[LoadRun] | None = None
        for level in found.levels:
            runs = level.of(scenario, rate)
            if runs:
                first = runs if first is None else first
                yield _row(level.label, runs, first, found.plan)


def best_runs(level: LevelLoad) -> list[LoadRun]:
    """The runs of a search that met the latency limit at the highest rate, one per round."""
    highest: dict[int, LoadRun] = {}
    for run in level.runs:
        if run.scenario == "server" and run.round and run.outcome == "held":
            before = highest.setdefault(run.round, run)
            if (run.rate or 0.0) > (before.rate or 0.0):
                highest[run.round] = run
    return list(highest.values())


def listed_batches(runs: Sequence[LoadRun]) -> list[ServedBatch]:
    """All batches of these runs."""
    return [batch for run in runs for batch in run.batches]


def _row(level: str, runs: list[LoadRun], first: list[LoadRun], plan: LoadPlan) -> Row:
    throughputs = [run.throughput for run in runs if run.throughput is not None]
    batches = listed_batches(runs)
    lates = [run.late for run in runs if run.late is not None]
    return Row(
        level=level,
        scenario=runs[0].scenario,
        rate=runs[0].rate,
        outcome=together(runs) or "unclear",
        reason=next((run.reason for run in runs if run.reason), ""),
        requests=sum(len(run.latencies) for run in runs),
        spreads={timed: _spread(runs, first, timed, plan.percentile) for timed in plan.timed},
        tokens=plan.texts.tokens if plan.texts is not None else 0,
        throughput=median(throughputs) if throughputs else None,
        throughput_ends=median_interval(throughputs, plan.seed),
        batch=mean(batch.size for batch in batches) if batches else None,
        padding=_padding(batches),
        dropped=sum(run.dropped for run in runs),
        queue=max(batch.left for batch in batches) if batches else None,
        busy=_busy(runs),
        waiting=_median(run.waiting for run in runs),
        overhead=_median(run.overhead for run in runs),
        late=max(lates) if lates else None,
        joules=_median(run.joules for run in runs),
    )


def _spread(runs: list[LoadRun], first: list[LoadRun], timed: Timed, percentile: float) -> Spread:
    shares = sorted({*PERCENTILES, percentile})
    return Spread(
        {share: pooled(runs, share, timed) for share in shares},
        {share: apart_in_turn(runs, first, share, timed) for share in shares},
    )


def _padding(batches: Sequence[ServedBatch]) -> float | None:
    ran = sum(batch.ran for batch in batches)
    return 1 - sum(batch.tokens for batch in batches) / ran if ran else None


def _busy(runs: list[LoadRun]) -> float | None:
    seconds = sum(run.seconds for run in runs)
    running = sum(batch.running for batch in listed_batches(runs)) / 1e9
    return running / seconds if seconds else None


def _median(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None

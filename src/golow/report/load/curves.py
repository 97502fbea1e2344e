"""The curves of a load test: latency over rate, latencies by share, batch sizes, and the queue over
time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from golow.programs.load.load_record import LevelLoad, LoadRun, Timed
from golow.programs.load.verdict import pooled

SHARES = 200  # points of a distribution
MOMENTS = 100  # of a queue
SEARCHED = 1.1  # between rates that are drawn as one after a search


class Point(NamedTuple):
    """Latency at a rate: requests per second, and seconds with their 99% ends."""

    rate: float
    latency: float
    low: float | None
    high: float


def points(
    level: LevelLoad, share: float, timed: Timed = "latency", within: float = 1.0
) -> list[Point]:
    """The percentile of a time at each rate of a level that early stopping allows to quote, by
    rate. within: factor between the rates of one point, which stands at their median: a search runs
    once at each of many rates that hardly differ."""
    found = []
    for runs in _by_rate(level.runs, within):
        quoted = pooled(runs, share, timed)
        if quoted is not None and quoted.high is not None:
            rate = median(run.rate or 0.0 for run in runs)
            found.append(Point(rate, quoted.value, quoted.low, quoted.high))
    return found


def _by_rate(runs: Iterable[LoadRun], within: float) -> list[list[LoadRun]]:
    """The server runs among these, by rate; those together whose rates differ by that factor."""
    rated = [run for run in runs if run.scenario == "server" and run.rate is not None]
    groups: list[list[LoadRun]] = []
    for run in sorted(rated, key=lambda run: run.rate or 0.0):
        if groups and (run.rate or 0.0) <= within * (groups[-1][0].rate or 0.0):
            groups[-1].append(run)
        else:
            groups.append([run])
    return groups


def distribution(runs: Sequence[LoadRun]) -> list[tuple[float, float]]:
    """Seconds, and the share of requests that took longer, from all to one of them."""
    latencies = np.sort([one for run in runs for one in run.latencies]) / 1e9
    if not latencies.size:
        return []
    count = latencies.size
    places = np.unique(np.concatenate(([0], count - np.geomspace(1, count, SHARES)))).astype(int)
    return [(float(latencies[place]), 1 - place / count) for place in np.unique(places)]


def batch_sizes(runs: Sequence[LoadRun]) -> dict[int, float]:
    """The share of batches of each size."""
    counted = Counter(batch.size for run in runs for batch in run.batches)
    total = sum(counted.values())
    return {size: count / total for size, count in sorted(counted.items())}


def queue(run: LoadRun) -> list[tuple[float, int]]:
    """The most requests that stayed behind a batch, in each of a hundred equal parts of the run:
    seconds since its first batch at which a part begins, and how many."""
    end = max((batch.closed for batch in run.batches), default=0)
    if not end:
        return []
    most = [0] * MOMENTS
    for batch in run.batches:
        part = min(MOMENTS - 1, MOMENTS * batch.closed // end)
        most[part] = max(most[part], batch.left)
    return [(part * end / MOMENTS / 1e9, left) for part, left in enumerate(most)]


def busiest(level: LevelLoad) -> list[LoadRun]:
    """The server runs in turn at the highest rate at which all of them ended; empty if there are
    none."""
    ended = [
        runs
        for runs in _by_rate((run for run in level.runs if run.latencies), within=1.0)
        if not any(run.outcome in ("overload", "failed") for run in runs)
    ]
    return ended[-1] if ended else []

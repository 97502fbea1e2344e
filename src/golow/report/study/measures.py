"""Measures that a study's figures show of a row: a value with its interval, and its formatting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from golow.levels.ladder import BASELINE, baseline
from golow.report.study.planes import Plane
from golow.report.study.rows import StudyRow, has_few_rounds

# Ticks in each power of an axis's base, from the coarsest, and the most ticks of an axis.
STEPS: dict[int, tuple[tuple[float, ...], ...]] = {
    2: ((1,), (1, 1.5), (1, 1.25, 1.5, 1.75)),
    10: ((1,), (1, 2, 5), (1, 2, 3, 4, 5, 6, 7, 8, 9)),
}
MOST_TICKS, LEAST_RANGE = 7, 2.0
CROWDED, FAR = 0.1, 0.4  # distances between ticks, as shares of the axis


class Value(NamedTuple):
    """A number and its 95% interval; without an interval both ends are the number itself."""

    middle: float
    low: float
    high: float


class Measure(NamedTuple):
    """A measure that a figure shows.

    units: suffixes with their sizes, from the largest. base: a logarithmic axis has ticks at its
    powers; 0 is a linear axis from 0 to 1. how: how the value of the given rows was measured.
    raced: whether it comes from the rounds of a race, which may be too few.
    """

    name: str
    title: str
    of: Callable[[StudyRow], Value | None]
    units: Sequence[tuple[str, float]]
    base: int
    how: Callable[[Iterable[StudyRow]], str]
    raced: bool = False

    def is_open(self, row: StudyRow) -> bool:
        """True if too few rounds leave the row's value open."""
        return self.raced and has_few_rounds(row)

    def unit(self, number: float) -> tuple[str, float]:
        """The largest unit that is not larger than the number."""
        return next((u for u in self.units if abs(number) >= 0.9995 * u[1]), self.units[-1])

    def text(self, number: float) -> str:
        """Three digits with a fitting unit."""
        unit, size = self.unit(number)
        return f"{digits(number / size, 3)}{unit}"

    def ticks(self, low: float, high: float) -> list[float]:
        """Three to seven round values in that range that do not crowd each other, two that are far
        apart, or three others if it has none; quarters for a share."""
        if not self.base:
            return [0.0, 0.25, 0.5, 0.75, 1.0]
        first, last = (math.floor(math.log(end, self.base)) for end in (low, high))
        two: list[float] = []
        for steps in STEPS[self.base]:
            powers = (
                step * float(self.base) ** p for p in range(first, last + 1) for step in steps
            )
            inside = [value for value in powers if low <= value <= high]
            found = inside[:: math.ceil(len(inside) / MOST_TICKS) or 1]
            gaps = [math.log(b / a, high / low) for a, b in pairwise(found)]
            if len(found) > 2 and min(gaps) > CROWDED:
                return found
            if len(found) == 2 and gaps[0] > FAR and not two:
                two = found
        return two or [low, math.sqrt(low * high), high]


def digits(number: float, count: int) -> str:
    """That many digits, all digits before the point, and no trailing zeros after it."""
    whole = abs(number) >= 10**count - 0.5
    return f"{number:.0f}" if whole else f"{number:.{count}g}"


def wide(low: float, high: float) -> tuple[float, float]:
    """The ends of a logarithmic axis or scale, far enough apart that noise looks small."""
    wider = max(1.0, math.sqrt(LEAST_RANGE * low / high))
    return low / wider, high * wider


def is_measured(plane: Plane, measure: Measure) -> bool:
    """True if any row of the plane has such a value."""
    return any(measure.of(row) is not None for row in plane.rows)


# ---------------------------------------------------------------- time, throughput and ratio


def _time(row: StudyRow) -> Value | None:
    if row.sample_time is None or row.sample_time <= 0:
        return None
    low, high = row.time_low, row.time_high
    if low is None or high is None or not 0 < low <= high:
        return Value(row.sample_time, row.sample_time, row.sample_time)
    samples = row.batch * row.ranks
    return Value(row.sample_time, low / samples, high / samples)


def _throughput(row: StudyRow) -> Value | None:
    time = _time(row)
    return None if time is None else Value(1 / time.middle, 1 / time.high, 1 / time.low)


def _ratio(row: StudyRow) -> Value | None:
    if row.ratio is None or row.ratio <= 0:
        return None
    low, high = row.ratio_low, row.ratio_high
    if low is None or high is None or not 0 < low <= high:
        return Value(row.ratio, row.ratio, row.ratio)
    return Value(row.ratio, low, high)


def is_baseline(row: StudyRow) -> bool:
    """True for the level to which the others of its cell are compared."""
    return row.level == baseline(row.ranks)


def compared_levels(plane: Plane) -> list[str]:
    """The levels that are not the baseline of all their cells."""
    compared = {row.level for row in plane.rows if not is_baseline(row)}
    return [level for level in plane.levels if level in compared]


def baselines_text(rows: Iterable[StudyRow]) -> str:
    """Baseline of ratios: ``eager``, or ``ddp`` for several ranks."""
    return " or ".join(dict.fromkeys(baseline(row.ranks) for row in rows)) or BASELINE


def ratio_text(ratio: float) -> str:
    """Two digits after the point, as far as they are significant: ``0.07``, ``1.25``, ``12``."""
    return f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.3g}"


# ---------------------------------------------------------------- memory, utilization and energy

MEMORY_KINDS = {
    "device_used": "on the GPU, as the driver reports it for the level's process",
    "device_added": "on the GPU, the increase of the memory in use since the level started",
    "resident": "resident set size of the level's process",
}


def memory_kind(row: StudyRow) -> str | None:
    """The column with the row's memory: on a GPU the device's, else the host's."""
    kinds = ("device_used", "device_added") if row.device == "cuda" else ("resident",)
    return next((kind for kind in kinds if (getattr(row, kind) or 0) > 0), None)


def _memory(row: StudyRow) -> Value | None:
    kind = memory_kind(row) if row.outcome == "measured" else None
    size = getattr(row, kind) if kind else None
    return Value(size, size, size) if size else None


def _memory_kinds(rows: Iterable[StudyRow]) -> str:
    kinds = dict.fromkeys(memory_kind(row) for row in rows if row.outcome == "measured")
    return "; or ".join(MEMORY_KINDS[kind] for kind in kinds if kind) or "not measured"


def _utilization(row: StudyRow) -> Value | None:
    share = row.utilization if row.outcome == "measured" else None
    return None if share is None else Value(share, share, share)


def _energy(row: StudyRow) -> Value | None:
    if row.outcome != "measured" or row.energy is None or row.energy <= 0:
        return None
    joules = row.energy / row.batch
    return Value(joules, joules, joules)


TIME = Measure(
    "time",
    "time per sample",
    _time,
    ((" s", 1.0), (" ms", 1e-3), (" us", 1e-6), (" ns", 1e-9)),
    10,
    lambda rows: "median time of an iteration divided by the batch size",
    raced=True,
)
THROUGHPUT = Measure(
    "throughput",
    "samples per second",
    _throughput,
    ((" M/s", 1e6), (" k/s", 1e3), (" /s", 1.0)),
    10,
    lambda rows: "batch size divided by the median time of an iteration",
    raced=True,
)
MEMORY = Measure(
    "memory",
    "memory",
    _memory,
    ((" GiB", 2**30), (" MiB", 2**20), (" KiB", 2**10), (" B", 1)),
    2,
    _memory_kinds,
)
UTILIZATION = Measure(
    "utilization",
    "GPU utilization",
    _utilization,
    (("%", 0.01),),
    0,
    lambda rows: "share of the time in which a kernel ran, from the driver",
)
ENERGY = Measure(
    "energy",
    "energy per sample",
    _energy,
    ((" kJ", 1e3), (" J", 1.0), (" mJ", 1e-3), (" uJ", 1e-6)),
    10,
    lambda rows: "energy of the whole GPU in an iteration divided by the batch size",
)
RATIO = Measure(
    "ratio",
    "ratio to eager",
    _ratio,
    (("", 1.0),),
    2,
    lambda rows: f"time divided by {baselines_text(rows)}'s in the same rounds; below 1 is faster",
    raced=True,
)
MEASURES = (TIME, MEMORY, UTILIZATION)
"""The measures that are drawn as lines and surfaces."""
MAPPED = (TIME, THROUGHPUT, MEMORY, UTILIZATION, ENERGY)
"""The measures that the page draws as maps."""

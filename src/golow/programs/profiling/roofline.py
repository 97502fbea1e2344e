"""The roofline: how fast each layer is at each level, and how fast the machine lets it be.

A layer that needs I operations for a byte can do no more in a second than the machine's arithmetic,
and no more than I times the bytes that it moves: the roof is the lower of the two.
Williams, Waterman and Patterson, "Roofline", https://doi.org/10.1145/1498765.1498785

Operations and bytes are those that the layer needs at least, counted in the captured graph
(`golow.lower.analysis.arithmetic`), whatever a level does instead. They are the same for every
level, so that a level's dot is higher for its time alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Literal

from golow.lower.analysis.arithmetic import LayerWork
from golow.measure.peak import Peak
from golow.programs.profiling.profile_record import LevelProfile, Profile
from golow.records.comparison import LayerTime
from golow.records.record import Record
from golow.records.workload import LayerPhase

Bound = Literal["memory", "arithmetic"]
Row = tuple[str, str]
"""The path of a module, and a phase."""

BYTES_OF = {"bf16": 0.5, "fp16": 0.5}
"""Factors by which a precision changes the bytes of the captured graph, which is in float32. All
are halved, also the indices of a max pool that runs as one step with a product."""


class RooflineDot(Record, frozen=True, kw_only=True):
    """A layer of a level in one phase, with those that run as one step with it.

    operations, bytes: that it needs at least. seconds: of a step. peak: the machine's.
    """

    level: str
    layer: str
    phase: LayerPhase
    operations: float
    bytes: float
    seconds: float
    peak: Peak

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.operations / self.bytes

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds

    @property
    def bound(self) -> Bound:
        """Which roof is the lower one."""
        moved = self.intensity * self.peak.bytes
        return "memory" if moved < self.peak.operations else "arithmetic"

    @property
    def share(self) -> float:
        """Share of the roof that it reaches. More than 1 if the peak was measured too low, or if a
        fast algorithm, such as Winograd's, needs fewer operations than are counted."""
        return self.rate / min(self.peak.operations, self.intensity * self.peak.bytes)


class LevelRoofline(Record, frozen=True, kw_only=True):
    """The dots of a level, in its order.

    seconds: of all its layers. without: of those that have no dot, since they have no products and
    no convolutions. partial: of those that have none, since some of their kernels are not known.
    """

    level: str
    dots: tuple[RooflineDot, ...]
    seconds: float
    without: float
    partial: float


def rooflines(profile: Profile) -> tuple[LevelRoofline, ...]:
    """The roofline of every level that has times by layer; empty if the machine's peak or the work
    of the layers is not known."""
    peak = profile.peak
    if peak is None or not profile.work or peak.operations <= 0 or peak.bytes <= 0:
        return ()
    work: dict[Row, LayerWork] = {(item.module, item.phase): item for item in profile.work}
    scale = BYTES_OF.get(profile.workload.precision, 1.0)
    timed = [level for level in profile.levels if level.layers]
    complete = _kernels(next((level for level in timed if not level.layers_missing), None))
    return tuple(_roofline(level, work, scale, peak, complete) for level in timed)


def step_rate(profile: Profile, level: LevelProfile) -> float | None:
    """Operations per second of a whole step without a profiler; None if that is not known."""
    operations = math.fsum(item.operations for item in profile.work)
    if not operations or level.time is None or level.time.value <= 0:
        return None
    return operations / level.time.value


# ---------------------------------------------------------------- implementation


def _roofline(
    level: LevelProfile,
    work: Mapping[Row, LayerWork],
    scale: float,
    peak: Peak,
    complete: Mapping[Row, float],
) -> LevelRoofline:
    """complete: the kernels of each layer at a level that knows its layers. One that does not, such
    as `compile` on a GPU, has only those of its kernels that are known from there; a layer without
    all of them would seem too fast."""
    steps: dict[Row, list[LayerTime]] = defaultdict(list)
    for step in level.layers:
        steps[step.modules[0], step.phase].append(step)
    kernels = _kernels(level)
    dots, total, without, partial = [], 0.0, 0.0, 0.0
    for row, covered in _covered(steps).items():
        seconds = _seconds(steps[row])
        needed = [work[place] for place in covered if place in work]
        operations = sum(item.operations for item in needed)
        size = scale * sum(item.bytes for item in needed)
        total += seconds
        if level.layers_missing and kernels[row] != complete.get(row):
            partial += seconds
        elif operations <= 0 or size <= 0 or seconds <= 0:
            without += seconds
        else:
            dot = RooflineDot(
                level=level.level,
                layer=row[0],
                phase=steps[row][0].phase,
                operations=operations,
                bytes=size,
                seconds=seconds,
                peak=peak,
            )
            dots.append(dot)
    return LevelRoofline(
        level=level.level, dots=tuple(dots), seconds=total, without=without, partial=partial
    )


def _kernels(level: LevelProfile | None) -> dict[Row, float]:
    """The kernels of each layer in a step."""
    found: dict[Row, float] = defaultdict(float)
    for step in () if level is None else level.layers:
        found[step.modules[0], step.phase] += step.kernels or 0.0
    return found


def _covered(steps: Mapping[Row, Sequence[LayerTime]]) -> dict[Row, list[Row]]:
    """The layers whose work each row does. Work counts once: for the layer's own row if it has one,
    or else for the first that covers it. The bytes between two layers of a row are not moved, and
    counted all the same: what a row needs is at most that."""
    owners = {row: row for row in steps}
    for row, found in steps.items():
        for step in found:
            for module in step.modules:
                owners.setdefault((module, step.phase), row)
    covered: dict[Row, list[Row]] = {row: [] for row in steps}
    for place, row in owners.items():
        covered[row].append(place)
    return covered


def _seconds(steps: Sequence[LayerTime]) -> float:
    """Median over the iterations of the steps' total."""
    return median(map(sum, zip(*(step.ns for step in steps), strict=True))) / 1e9

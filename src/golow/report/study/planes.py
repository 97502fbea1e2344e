"""A study cut into planes: rows that differ only in two axes and the level, for one figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from golow.programs.study.study_record import Study
from golow.records.workload import Precision
from golow.report.published import PublishedGrid
from golow.report.study.rows import StudyRow, levels_of

Axis = Literal["resolution", "batch", "threads", "ranks", "precision", "model"]
Place = str | int | None  # None: the model's own resolution, one thread per core
Numbers = NDArray[np.float64]

# The order in which a study's axes become x, then y, of its figures. Numeric ones may be drawn as
# lines.
AXES: tuple[Axis, ...] = ("resolution", "batch", "threads", "ranks", "precision", "model")
FILLING: tuple[Axis, ...] = ("batch", "resolution", "threads")  # where fewer than two vary
LABELS: dict[Axis, str] = {
    "resolution": "resolution (pixels)",
    "batch": "batch size",
    "threads": "threads",
    "ranks": "ranks",
    "precision": "precision",
    "model": "model",
}
OWN = {"resolution": "own", "threads": "all"}
APART = ("environment", "device", "mode")  # no axis of a figure: one figure per value


class Plane(NamedTuple):
    """Rows that differ in x, y or level. xs, ys: the places along both axes, numbers ascending.
    fixed: what else distinguishes it from the study's other planes."""

    x: Axis
    y: Axis
    xs: Sequence[Place]
    ys: Sequence[Place]
    fixed: dict[str, Place]
    rows: Sequence[StudyRow]

    @property
    def levels(self) -> list[str]:
        """In the order of the ladder."""
        return levels_of(self.rows)

    def places(self, axis: Axis) -> Sequence[Place]:
        """The places along one of the two axes."""
        return self.xs if axis == self.x else self.ys

    def is_numeric(self, axis: Axis) -> bool:
        """True if the axis has several numbers, so that lines can be drawn over it."""
        places = self.places(axis)
        return len(places) > 1 and all(isinstance(place, int) for place in places)

    def of(self, level: str) -> dict[tuple[Place, Place], StudyRow]:
        """The level's rows by x and y."""
        return {
            (getattr(row, self.x), getattr(row, self.y)): row
            for row in self.rows
            if row.level == level
        }

    def grid(self, level: str, value: Callable[[StudyRow], float | None]) -> Numbers:
        """The level's values, one row per place of y and one column per place of x; NaN where
        there is none."""
        rows = self.of(level)
        found = [
            None if (row := rows.get((x, y))) is None else value(row)
            for y in self.ys
            for x in self.xs
        ]
        numbers = np.array([math.nan if n is None else n for n in found], np.float64)
        return numbers.reshape(len(self.ys), len(self.xs))

    @property
    def name(self) -> str:
        """For a file name: the mode, then what else is fixed."""
        texts = (place_text(axis, place) for axis, place in self.fixed.items())
        return "-".join(texts).replace(" ", "-")


def planes(rows: Sequence[StudyRow], study: Study | None = None) -> list[Plane]:
    """The study's planes, in the order of its rows. x and y are the first two axes with several
    values; a third one, the mode and the environment give a plane for each value. If the study is
    given, batch sizes and resolutions that are not measured yet have a place too."""
    several = [axis for axis in AXES if len(_found(rows, axis, study)) > 1]
    x, y = [*several, *(axis for axis in FILLING if axis not in several)][:2]
    others = [name for name in (*APART, *AXES) if name not in (x, y)]
    named = [n for n in others if n == "mode" or len({getattr(row, n) for row in rows}) > 1]
    groups: dict[tuple[Place, ...], list[StudyRow]] = {}
    for row in rows:
        groups.setdefault(tuple(getattr(row, name) for name in named), []).append(row)
    ordered = sorted(named, key=lambda name: name != "mode")
    return [
        Plane(
            x,
            y,
            _places(group, x, study),
            _places(group, y, study),
            {name: getattr(group[0], name) for name in ordered},
            group,
        )
        for group in groups.values()
    ]


def _found(rows: Sequence[StudyRow], axis: Axis, study: Study | None) -> set[Place]:
    """The axis's values, each once."""
    asked = getattr(study, axis) if study and rows and axis in ("batch", "resolution") else ()
    return {*(getattr(row, axis) for row in rows), *asked}


def _places(rows: Sequence[StudyRow], axis: Axis, study: Study | None) -> list[Place]:
    """Places of an axis in order: numbers ascending, models by number of parameters."""
    found = _found(rows, axis, study)
    if axis == "precision":
        return [precision for precision in get_args(Precision) if precision in found]
    if axis == "model":
        sizes = {row.model: row.parameters or math.inf for row in rows}
        return sorted(found, key=lambda model: (sizes[str(model)], str(model)))
    return sorted(found, key=lambda place: 0 if place is None else int(place))


def published_plane(paper: PublishedGrid | None, plane: Plane) -> Plane | None:
    """The paper's values for the plane's model, mode, levels and places, as rows of the same kind;
    None if it has none, or if the plane's axes are not batch and resolution."""
    if paper is None:
        return None
    model, mode = plane.rows[0].model, plane.rows[0].mode
    if model != paper.model or {plane.x, plane.y} != {"resolution", "batch"}:
        return None
    cells = [
        cell
        for cell in paper.cells
        if cell.mode == mode
        and cell.level in plane.levels
        and getattr(cell, plane.x) in plane.xs
        and getattr(cell, plane.y) in plane.ys
    ]
    eager = {(c.batch, c.resolution): c.sample_time for c in cells if c.level == "eager"}
    rows = []
    for cell in cells:
        baseline = eager.get((cell.batch, cell.resolution))
        rows.append(
            StudyRow(
                study=paper.name,
                cell=f"{cell.mode}-{cell.batch}-{cell.resolution}",
                environment=paper.hardware,
                model=model,
                mode=mode,
                device="cuda",
                precision="default",
                threads=None,
                batch=cell.batch,
                resolution=cell.resolution,
                level=cell.level,
                state="done",
                verdict=None,
                outcome="measured",
                reason="",
                created="2020",
                cell_seconds=None,
                time=cell.sample_time * cell.batch,
                sample_time=cell.sample_time,
                ratio=cell.sample_time / baseline if baseline else None,
                device_used=cell.memory,
                utilization=cell.utilization,
            )
        )
    return plane._replace(fixed={}, rows=rows) if rows else None


def place_text(axis: str, place: Place) -> str:
    """A value of an axis as text with its axis: ``batch 32``, ``bf16``, ``own resolution``."""
    if place is None:
        return {"resolution": "own resolution", "threads": "all cores"}.get(axis, f"no {axis}")
    return f"{axis} {place}" if axis in ("batch", "resolution") else _counted(axis, place)


def _counted(axis: str, place: Place) -> str:
    if axis not in ("threads", "ranks"):
        return str(place)
    return f"{place} {axis if place != 1 else axis[:-1]}"


def tick_text(axis: str, place: Place) -> str:
    """A value of an axis as its tick label."""
    return OWN.get(axis, "none") if place is None else str(place)

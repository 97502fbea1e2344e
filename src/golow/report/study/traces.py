"""The figures of the interactive page as Plotly's data: maps, lines and surfaces."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from golow.report.study.cuts import Cut
from golow.report.study.maps import limits, middle
from golow.report.study.measures import MEASURES, RATIO, Measure, is_measured, wide
from golow.report.study.planes import LABELS, Numbers, Plane, tick_text
from golow.report.study.rows import SIGNS, StudyRow
from golow.report.study.surfaces import has_surface
from golow.report.style import look
from golow.report.units import bytes_text, joules_text, seconds_text, share_text

Views = dict[str, dict[str, Any]]  # by view and choice, a figure as JSON data

SYMBOLS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "D": "diamond",
    "v": "triangle-down",
    "X": "x",
    "P": "cross",
    "*": "star",
    "<": "triangle-left",
    ">": "triangle-right",
    "p": "pentagon",
    "h": "hexagon",
    "d": "diamond-tall",
    "8": "octagon",
}
"""Plotly's names of matplotlib's markers."""

ALL = "all levels"
HEIGHT, GAP = 620, 2  # pixels: height of the figure, gap between cells
GREY = "#D0D0D0"


class Hover:
    """The hover texts, each once; figures refer to them by number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, row: StudyRow | None) -> int | None:
        """The number of the row's text; None without a row."""
        if row is None:
            return None
        text = hover_text(row)
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]


def hover_text(row: StudyRow) -> str:
    """All values of a row that a reader may look for, one per line."""
    told = [
        f"<b>{html.escape(row.level)}</b> {row.outcome}",
        f"{html.escape(row.model)}, {row.mode}, precision {row.precision}",
        f"batch {row.batch}, {tick_text('resolution', row.resolution)} pixels per side",
        *_measured(row),
        html.escape(row.reason),
    ]
    return "<br>".join(text for text in told if text)


def _measured(row: StudyRow) -> Iterator[str]:
    if row.time is not None:
        ends = _ends(row.time_low, row.time_high, seconds_text)
        yield f"iteration {seconds_text(row.time)}{ends}"
        yield f"sample {seconds_text(row.sample_time)}"
    if row.ratio is not None:
        ends = _ends(row.ratio_low, row.ratio_high, "{:.3f}".format)
        yield f"relative to eager {row.ratio:.3f}{ends} {row.word or ''}".rstrip()
    memory = {"on the GPU": row.device_used or row.device_added, "resident": row.resident}
    yield ", ".join(f"{bytes_text(size)} {where}" for where, size in memory.items() if size)
    if row.utilization is not None:
        yield f"GPU utilization {share_text(row.utilization)}"
    if row.energy is not None:
        yield f"energy {joules_text(row.energy)} per iteration"


def _ends(low: float | None, high: float | None, text: Callable[[float], str]) -> str:
    return "" if low is None or high is None else f" ({text(low)} to {text(high)})"


# ---------------------------------------------------------------- views


def views(plane: Plane, under: Plane | None, hover: Hover) -> Views:
    """Maps by level, lines by value of the other axis, and surfaces of all levels."""
    found: Views = {}
    others = [level for level in plane.levels if level != "eager"]
    if others:
        found["map: ratio to eager"] = {v: _map(plane, v, RATIO, hover) for v in others}
    shown = [measure for measure in MEASURES if is_measured(plane, measure)]
    for measure in shown:
        maps = {level: _map(plane, level, measure, hover) for level in plane.levels}
        found[f"map: {measure.title}"] = maps
    for measure in shown:
        for axis in (plane.x, plane.y):
            if plane.is_numeric(axis):
                cuts = [Cut(plane, axis, at) for at in plane.places(Cut(plane, axis, None).other)]
                found[f"lines: {measure.title} over {axis}"] = {
                    cut.title: _lines(cut, under, measure, hover) for cut in cuts
                }
    if has_surface(plane):
        for measure in shown:
            found[f"surface: {measure.title}"] = {ALL: _surfaces(plane, measure, hover)}
    return found


def _map(plane: Plane, level: str, measure: Measure, hover: Hover) -> Any:
    """Cells in the colour of their value, on a scale shared by all levels; grey ones with the
    reason."""
    from plotly import graph_objects as go

    values = plane.grid(level, middle(measure))
    low, high = limits([plane.grid(each, middle(measure)) for each in plane.levels], measure)
    rows = plane.of(level)
    cells = [[rows.get((x, y)) for x in plane.xs] for y in plane.ys]
    ticks = measure.ticks(low, high)
    same: dict[str, Any] = {
        "x": [tick_text(plane.x, x) for x in plane.xs],
        "y": [tick_text(plane.y, y) for y in plane.ys],
        "customdata": [[hover.number(row) for row in line] for line in cells],
        "hoverinfo": "text",
        "hoverongaps": False,
        "texttemplate": "%{text}",
        "xgap": GAP,
        "ygap": GAP,
    }
    signs = [[SIGNS[row.outcome] if row else None for row in line] for line in cells]
    without = [[None if sign is None else 0 for sign in line] for line in signs]
    grey = go.Heatmap(
        z=without, text=signs, colorscale=[[0, GREY], [1, GREY]], showscale=False, **same
    )
    numbers = go.Heatmap(
        z=_plain(_scaled(values, measure)),
        text=[[_cell_text(row, measure) for row in line] for line in cells],
        zmin=_scaled(low, measure),
        zmax=_scaled(high, measure),
        colorscale="RdBu_r" if measure is RATIO else "Cividis",
        colorbar={
            "title": {"text": measure.title},
            "tickvals": [_scaled(tick, measure) for tick in ticks],
            "ticktext": [measure.text(tick) for tick in ticks],
        },
        **same,
    )
    return _json(
        go.Figure([grey, numbers]),
        title={"text": f"{level}: {measure.title}"},
        xaxis={"title": {"text": LABELS[plane.x]}, "type": "category"},
        yaxis={"title": {"text": LABELS[plane.y]}, "type": "category"},
    )


def _cell_text(row: StudyRow | None, measure: Measure) -> str:
    """The value, and for a ratio whether it is unclear."""
    value = measure.of(row) if row else None
    if row is None or value is None:
        return ""
    word = "<br>unclear" if measure is RATIO and row.word == "unclear" else ""
    return f"{measure.text(value.middle)}{word}"


def _lines(cut: Cut, under: Plane | None, measure: Measure, hover: Hover) -> Any:
    """One line per level with its intervals, and the paper's thin and dashed."""
    from plotly import graph_objects as go

    figure = go.Figure()
    for level in cut.plane.levels:
        x, middles, low, high = cut.numbers(level, measure)
        style = look(level)
        figure.add_scatter(
            x=_plain(x),
            y=_plain(middles),
            error_y={"array": _plain(high - middles), "arrayminus": _plain(middles - low)},
            name=html.escape(level),
            mode="lines+markers",
            line={"color": style.colour, "dash": "solid" if style.line == "-" else "dash"},
            marker={"symbol": SYMBOLS[style.marker], "size": 8},
            customdata=[hover.number(row) for row in cut.rows(level)],
            hoverinfo="text",
        )
    published = [level for level in cut.plane.levels if under and level in under.levels]
    for level in published:
        x, middles, _, _ = cut._replace(plane=under or cut.plane).numbers(level, measure)
        figure.add_scatter(
            x=_plain(x),
            y=_plain(middles),
            name=f"{level}, 2020",
            mode="lines",
            line={"color": look(level).colour, "dash": "4px,4px", "width": 1},
            hoverinfo="skip",
        )
    return _json(
        figure,
        title={"text": f"{measure.title} at {cut.title}"},
        xaxis=_axis(LABELS[cut.axis], [float(place or 0) for place in cut.plane.places(cut.axis)]),
        yaxis=_measure_axis(measure, [trace.y for trace in figure.data]),
    )


def _surfaces(plane: Plane, measure: Measure, hover: Hover) -> Any:
    """All levels over both axes, to rotate; each can be hidden in the legend."""
    from plotly import graph_objects as go

    figure = go.Figure()
    grids = {level: plane.grid(level, middle(measure)) for level in plane.levels}
    for level, values in grids.items():
        rows = plane.of(level)
        colour = look(level).colour
        figure.add_surface(
            x=list(plane.xs),
            y=list(plane.ys),
            z=_plain(values),
            name=html.escape(level),
            showlegend=True,
            showscale=False,
            opacity=0.85,
            colorscale=[[0, colour], [1, colour]],
            customdata=[[hover.number(rows.get((x, y))) for x in plane.xs] for y in plane.ys],
            hoverinfo="text",
        )
    scene: dict[str, Any] = {
        "xaxis": _axis(LABELS[plane.x], [float(place or 0) for place in plane.xs]),
        "yaxis": _axis(LABELS[plane.y], [float(place or 0) for place in plane.ys]),
        "zaxis": _measure_axis(measure, [grid.ravel() for grid in grids.values()]),
    }
    scene["camera"] = {
        "eye": {"x": -1.6, "y": -1.8, "z": 0.9},
        "center": {"x": 0, "y": 0, "z": -0.2},
    }
    return _json(figure, title={"text": measure.title}, scene=scene)


# ---------------------------------------------------------------- axes and JSON


def _axis(label: str, ticks: Sequence[float]) -> dict[str, Any]:
    texts = [f"{tick:g}" for tick in ticks]
    title = {"text": label}
    return {"title": title, "type": "log", "tickvals": list(ticks), "ticktext": texts}


def _measure_axis(measure: Measure, values: Sequence[Any]) -> dict[str, Any]:
    found = np.array([v for part in values for v in part if v is not None], np.float64)
    found = found[np.isfinite(found)]
    low, high = (found.min(), found.max()) if found.size else wide(1.0, 1.0)
    ticks = measure.ticks(float(low), float(high))
    return {
        "title": {"text": measure.title},
        "type": "log" if measure.base else "linear",
        "tickvals": ticks,
        "ticktext": [measure.text(tick) for tick in ticks],
    }


def _scaled(values: Any, measure: Measure) -> Any:
    """Logarithms for logarithmic measures: Plotly's colour scales cannot be logarithmic."""
    return np.log(values) if measure.base else values


def _plain(values: Numbers) -> list[Any]:
    """The value for JSON: None if it is not a number."""
    return [
        _plain(value)
        if isinstance(value, np.ndarray)
        else float(value)
        if np.isfinite(value)
        else None
        for value in values
    ]


def _json(figure: Any, **layout: Any) -> Any:
    figure.update_layout(template="none", height=HEIGHT, margin={"t": 60, "b": 70}, **layout)
    return json.loads(figure.to_json())

"""The figures of the interactive page as Plotly's data: maps, lines and surfaces."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from golow.report.study.cells import UNCOLOURED
from golow.report.study.cuts import HOLLOW, Cut
from golow.report.study.fastest import FASTEST, Winner, winners_alone, winners_of
from golow.report.study.maps import known, limits
from golow.report.study.measures import MEASURES, RATIO, Measure, is_measured, ratio_text, wide
from golow.report.study.planes import LABELS, Numbers, Plane, tick_text
from golow.report.study.rows import SIGNS, StudyRow, has_few_rounds
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


class Square(NamedTuple):
    """A cell of a map. text: in its colour, or on pale ground if it is from too few rounds."""

    row: StudyRow | None
    text: str = ""
    few: bool = False

    @property
    def below(self) -> str | None:
        """The text on grey or pale ground: the sign of what has no number."""
        if self.few:
            return self.text
        return SIGNS[self.row.outcome] if self.row is not None else None


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
    if has_few_rounds(row):
        yield f"{row.rounds} round{'s' if row.rounds != 1 else ''}: too few for a conclusion"
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
        found["map: fastest level"] = {ALL: _fastest(plane, hover)}
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
    reason, and pale ones with a value from too few rounds."""
    values = plane.grid(level, known(measure))
    low, high = limits([plane.grid(each, known(measure)) for each in plane.levels], measure)
    ticks = measure.ticks(low, high)
    numbers = {
        "z": _plain(_scaled(values, measure)),
        "zmin": _scaled(low, measure),
        "zmax": _scaled(high, measure),
        "colorscale": "RdBu_r" if measure is RATIO else "Cividis",
        "colorbar": {
            "title": {"text": measure.title},
            "tickvals": [_scaled(tick, measure) for tick in ticks],
            "ticktext": [measure.text(tick) for tick in ticks],
        },
    }
    rows = plane.of(level)

    def square(row: StudyRow | None) -> Square:
        is_few = row is not None and measure.is_open(row)
        return Square(row, _cell_text(row, measure), is_few)

    squares = [[square(rows.get((x, y))) for x in plane.xs] for y in plane.ys]
    return _heat(plane, f"{level}: {measure.title}", squares, numbers, hover)


def _fastest(plane: Plane, hover: Hover) -> Any:
    """Cells in the colour of their fastest level, with its ratio to eager, and whether another
    one's interval overlaps."""
    winners = winners_of(plane)
    shown = winners_alone(plane, winners).of(FASTEST)
    places = [[shown.get((x, y)) for x in plane.xs] for y in plane.ys]
    found = [[winners.get(row.cell) if row else None for row in line] for line in places]
    won = {best.row.level for line in found for best in line if best}
    levels = [level for level in plane.levels if level in won]
    colours = [look(level).colour for level in levels]
    steps = [[(n + end) / len(levels), c] for n, c in enumerate(colours) for end in (0, 1)]
    numbers = {
        "z": [[levels.index(best.row.level) if best else None for best in line] for line in found],
        "zmin": -0.5,
        "zmax": len(levels) - 0.5,
        "colorscale": steps or [[0, GREY], [1, GREY]],
        "colorbar": {
            "title": {"text": FASTEST},
            "tickvals": [*range(len(levels))],
            "ticktext": [html.escape(level) for level in levels],
        },
    }
    squares = [
        [Square(best.row, _winner_text(best)) if best else Square(row) for best, row in line]
        for line in (zip(*lines, strict=True) for lines in zip(found, places, strict=True))
    ]
    return _heat(plane, "fastest level: ratio to eager", squares, numbers, hover)


def _heat(
    plane: Plane,
    title: str,
    squares: Sequence[Sequence[Square]],
    numbers: dict[str, Any],
    hover: Hover,
) -> Any:
    """A map of the plane: squares with a number in its colour, those without in grey with a
    sign, and those with a number from too few rounds pale."""
    from plotly import graph_objects as go

    same: dict[str, Any] = {
        "x": [tick_text(plane.x, x) for x in plane.xs],
        "y": [tick_text(plane.y, y) for y in plane.ys],
        "customdata": [[hover.number(square.row) for square in line] for line in squares],
        "hoverinfo": "text",
        "hoverongaps": False,
        "texttemplate": "%{text}",
        "xgap": GAP,
        "ygap": GAP,
    }
    grey = go.Heatmap(
        z=[[None if at.row is None else int(at.few) for at in line] for line in squares],
        text=[[square.below for square in line] for line in squares],
        zmin=0,
        zmax=1,
        colorscale=[[0, GREY], [1, UNCOLOURED]],
        showscale=False,
        **same,
    )
    above = [["" if square.few else square.text for square in line] for line in squares]
    return _json(
        go.Figure([grey, go.Heatmap(text=above, **numbers, **same)]),
        title={"text": title},
        xaxis={"title": {"text": LABELS[plane.x]}, "type": "category"},
        yaxis={"title": {"text": LABELS[plane.y]}, "type": "category"},
    )


def _cell_text(row: StudyRow | None, measure: Measure) -> str:
    """The value, and whether it is unclear."""
    if row is None:
        return ""
    value, text = measure.of(row), ratio_text if measure is RATIO else measure.text
    unclear = measure.is_open(row) or (measure is RATIO and row.word == "unclear")
    return "<br>".join(([text(value.middle)] if value else []) + (["unclear"] if unclear else []))


def _winner_text(best: Winner | None) -> str:
    if best is None:
        return ""
    ratio = "" if best.row.ratio is None else f"<br>{ratio_text(best.row.ratio)}"
    unclear = "<br>unclear" if best.close or has_few_rounds(best.row) else ""
    return f"{html.escape(best.row.level)}{ratio}{unclear}"


def _lines(cut: Cut, under: Plane | None, measure: Measure, hover: Hover) -> Any:
    """One line per level with its intervals, and the paper's thin and dashed. Points of too few
    rounds are hollow, without line and interval."""
    from plotly import graph_objects as go

    figure, hollow = go.Figure(), False
    for level in cut.plane.levels:
        x, middles, low, high = cut.numbers(level, measure)
        style, is_open = look(level), cut.is_open(level, measure)
        if is_open.any():
            hollow = True
            figure.add_scatter(
                x=_plain(x),
                y=_plain(np.where(is_open, middles, np.nan)),
                legendgroup=level,
                showlegend=False,
                mode="markers",
                marker={
                    "symbol": f"{SYMBOLS[style.marker]}-open",
                    "size": 9,
                    "color": style.colour,
                },
                customdata=[hover.number(row) for row in cut.rows(level)],
                hoverinfo="text",
            )
        middles = np.where(is_open, np.nan, middles)
        figure.add_scatter(
            x=_plain(x),
            y=_plain(middles),
            error_y={"array": _plain(high - middles), "arrayminus": _plain(middles - low)},
            name=html.escape(level),
            legendgroup=level,
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
        title={"text": f"{measure.title} at {cut.title}{f'; hollow: {HOLLOW}' if hollow else ''}"},
        xaxis=_axis(LABELS[cut.axis], [float(place or 0) for place in cut.plane.places(cut.axis)]),
        yaxis=_measure_axis(measure, [trace.y for trace in figure.data]),
    )


def _surfaces(plane: Plane, measure: Measure, hover: Hover) -> Any:
    """All levels over both axes, to rotate; each can be hidden in the legend."""
    from plotly import graph_objects as go

    figure = go.Figure()
    grids = {level: plane.grid(level, known(measure)) for level in plane.levels}
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

"""The cells of a study: what was measured of a level as columns, the comparison that a cell opens
to, and every cell as one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from golow.records.comparison import Quantity
from golow.report.page import blocks
from golow.report.page.blocks import Block
from golow.report.study.measures import is_baseline, memory_kind, ratio_text
from golow.report.study.planes import Place, tick_text
from golow.report.study.rows import StudyRow
from golow.report.units import bytes_text, interval_text, joules_text, seconds_text, share_text

AXES = ("environment", "model", "mode", "precision", "threads", "ranks", "batch", "resolution")


class Figure(NamedTuple):
    """A column: its title, a row's value and how it is written."""

    title: str
    value: Callable[[StudyRow], float | None]
    text: Callable[[StudyRow], str]


def _plain(
    title: str, value: Callable[[StudyRow], float | None], text: Callable[[float | None], str]
) -> Figure:
    return Figure(title, value, lambda row: text(value(row)))


def _ratio(row: StudyRow) -> str:
    if row.ratio is None:
        return "-"
    ends = ""
    if row.ratio_low is not None and row.ratio_high is not None and not is_baseline(row):
        ends = f"\n{ratio_text(row.ratio_low)}-{ratio_text(row.ratio_high)}"
    return f"{ratio_text(row.ratio)} {row.word or ''}{ends}"


def _memory(row: StudyRow) -> float | None:
    kind = memory_kind(row)
    found: float | None = getattr(row, kind) if kind else None
    return found


def _count(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


FIGURES = (
    _plain("time", lambda row: row.time, seconds_text),
    Figure("interval", lambda row: row.time, lambda row: _interval(row)),
    Figure("over eager", lambda row: row.ratio, _ratio),
    _plain("memory", _memory, bytes_text),
    _plain("GPU utilization", lambda row: row.utilization, share_text),
    _plain("energy", lambda row: row.energy, joules_text),
    _plain("ready after", lambda row: row.ready, seconds_text),
    _plain("build", lambda row: row.build, seconds_text),
    _plain("rounds", lambda row: row.rounds, _count),
    _plain("disturbed", lambda row: row.contended_share, share_text),
    _plain("throttled", lambda row: row.throttled_share or None, share_text),
)


def comparison_of(rows: Sequence[StudyRow], title: str) -> list[Block]:
    """Content of an opened cell: every level of its comparison."""
    timed = [row for row in rows if row.time is not None]
    longest = max((row.time_high or row.time or 0.0 for row in timed), default=0.0) or 1.0
    figures = _known(rows)
    columns = [blocks.column(name, number=False) for name in ("level", "time, interval")]
    columns += [blocks.column(figure.title) for figure in figures]
    columns.append(blocks.column("became", number=False))
    shown = [
        [_level(row), _bar(row, longest), *_cells(row, figures), _outcome(row)] for row in rows
    ]
    best = min(timed, key=lambda row: row.time or 0.0, default=None)
    said = "Nothing was measured." if best is None else f"{best.level} is fastest here."
    return [blocks.paragraph(f"{title}: {said}"), blocks.table(title, columns, shown)]


def every_cell(rows: Sequence[StudyRow]) -> Block:
    """One row per cell and level."""
    several = [axis for axis in AXES if len({getattr(row, axis) for row in rows}) > 1]
    figures = _known(rows)
    columns = [blocks.column(axis, number=axis in ("batch", "resolution")) for axis in several]
    columns += [blocks.column("level", number=False)]
    columns += [blocks.column(figure.title) for figure in figures]
    columns += [blocks.column("became", number=False)]

    def line(row: StudyRow) -> list[Block]:
        places: list[Place] = [getattr(row, axis) for axis in several]
        texts = [tick_text(axis, place) for axis, place in zip(several, places, strict=True)]
        first = [blocks.cell(t, order_of(p)) for t, p in zip(texts, places, strict=True)]
        return [*first, _level(row), *_cells(row, figures), _outcome(row)]

    return blocks.table("Every level in every cell", columns, map(line, rows))


def order_of(place: Place) -> float | None:
    """Sort key of a place; None for a name."""
    return float(place) if isinstance(place, int) else None


def _known(rows: Sequence[StudyRow]) -> list[Figure]:
    """The columns that any row has."""
    return [figure for figure in FIGURES if any(figure.value(row) is not None for row in rows)]


def _level(row: StudyRow) -> Block:
    return blocks.cell(row.level, colour=blocks.level_colour(row.level))


def _outcome(row: StudyRow) -> Block:
    return blocks.cell(f"{row.outcome}: {row.reason}" if row.reason else row.outcome)


def _cells(row: StudyRow, figures: Sequence[Figure]) -> Iterator[Block]:
    for figure in figures:
        word = row.word or "" if figure.title == "over eager" else ""
        yield blocks.cell(figure.text(row), figure.value(row), word=word)


def _interval(row: StudyRow) -> str:
    if row.time is None:
        return ""
    return interval_text(
        Quantity(name="time", unit="s", value=row.time, low=row.time_low, high=row.time_high)
    )


def _bar(row: StudyRow, longest: float) -> Block:
    if row.time is None:
        return blocks.cell("")
    ends = (row.time, row.time_low or row.time, row.time_high or row.time)
    value, low, high = (seconds / longest for seconds in ends)
    said = f"{seconds_text(row.time)}, {_interval(row)}"
    bar = {"value": value, "low": low, "high": high, "text": said}
    return blocks.cell("", row.time, bar=bar, colour=blocks.level_colour(row.level))

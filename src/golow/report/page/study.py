"""A study as sections: the fastest level of every cell, every level against eager, times over one
axis, and all cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from golow.record import Quantity
from golow.report.page import blocks
from golow.report.page.blocks import Block
from golow.report.published import PublishedGrid
from golow.report.study.caption import machine, reference
from golow.report.study.measures import TIME, ratio_text
from golow.report.study.planes import (
    Place,
    Plane,
    place_text,
    planes,
    published_plane,
    tick_text,
)
from golow.report.study.rows import SIGNS, StudyRow
from golow.report.units import bytes_text, interval_text, seconds_text


def sections(
    rows: Sequence[StudyRow], name: str, paper: PublishedGrid | None = None
) -> list[Block]:
    """name: prefix of the sections' anchors. paper: published values, shown beside the study's."""
    shown = planes(rows)
    made = [blocks.section(f"{name}-answer", "Answer", _answer(shown))]
    for number, plane in enumerate(shown):
        of, own = _of(plane), f"{name}-{number}"
        made.append(blocks.section(f"{own}-fastest", f"The fastest level{of}", _fastest(plane)))
        made.append(blocks.section(f"{own}-ratio", f"Against eager{of}", _ratios(plane, paper)))
        made.append(blocks.section(f"{own}-cuts", f"Times{of}", _cuts(plane)))
    made.append(blocks.section(f"{name}-cells", "Every cell", [_all(rows)]))
    return made


def _of(plane: Plane) -> str:
    fixed = ", ".join(place_text(axis, place) for axis, place in plane.fixed.items())
    return f" ({fixed})" if fixed else ""


# ---------------------------------------------------------------- answer


def _answer(shown: Sequence[Plane]) -> Iterator[Block]:
    for plane in shown:
        won = Counter(row.level for row in _winners(plane).values())
        cells = {row.cell for row in plane.rows}
        if not won:
            yield blocks.paragraph(f"Nothing was measured{_of(plane)}.", style="lead")
            continue
        (level, most), *others = won.most_common()
        rest = ", ".join(f"{other} in {count}" for other, count in others)
        text = f"{level} is fastest in {most} of {len(cells)} cells{_of(plane)}"
        yield blocks.paragraph(f"{text}; {rest}." if rest else f"{text}.", style="lead")
    yield blocks.paragraph(machine([row for plane in shown for row in plane.rows]), style="note")


def _winners(plane: Plane) -> dict[tuple[Place, Place], StudyRow]:
    """The row with the least time in each cell, by its places."""
    found: dict[tuple[Place, Place], StudyRow] = {}
    for row in plane.rows:
        at = getattr(row, plane.x), getattr(row, plane.y)
        value, best = TIME.of(row), TIME.of(found[at]) if at in found else None
        if value is not None and (best is None or value.middle < best.middle):
            found[at] = row
    return found


# ---------------------------------------------------------------- maps


def _fastest(plane: Plane) -> Iterator[Block]:
    won = _winners(plane)

    def cell(x: Place, y: Place) -> Block:
        row = won.get((x, y))
        if row is None:
            return blocks.cell("-")
        ratio = "" if row.ratio is None else f"\n{ratio_text(row.ratio)} of eager"
        colour = blocks.level_colour(row.level)
        return blocks.cell(f"{row.level}{ratio}", row.ratio, colour=colour)

    rows = [
        [blocks.cell(tick_text(plane.y, y), _order(y)), *(cell(x, y) for x in plane.xs)]
        for y in plane.ys
    ]
    details = [[_of_row(plane, x, y) for x in plane.xs if (x, y) in won] for y in plane.ys]
    where = f"By {plane.y} and {plane.x}{_of(plane)}."
    caption = f"{where} Click a {plane.y} for what was measured in its cells."
    yield blocks.table(caption, _heads(plane), rows, details)


def _of_row(plane: Plane, x: Place, y: Place) -> Block:
    """All levels of one cell."""
    rows = [row for row in plane.rows if (getattr(row, plane.x), getattr(row, plane.y)) == (x, y)]
    titles = ("time", "interval", "over eager", "memory")
    columns = [blocks.column("level", number=False), *map(blocks.column, titles)]
    columns.append(blocks.column("became", number=False))
    place = f"{plane.y} {tick_text(plane.y, y)}, {plane.x} {tick_text(plane.x, x)}"
    caption = f"{place}{_of(plane)}"
    return blocks.table(caption, columns, map(_cells, rows))


def _cells(row: StudyRow) -> list[Block]:
    value = row.device_used or row.resident
    time = None
    if row.time is not None:
        time = Quantity(name="time", unit="s", value=row.time, low=row.time_low, high=row.time_high)
    return [
        blocks.cell(row.level, colour=blocks.level_colour(row.level)),
        blocks.cell("-" if row.time is None else seconds_text(row.time), row.time),
        blocks.cell("" if time is None else interval_text(time)),
        blocks.cell("-" if row.ratio is None else ratio_text(row.ratio), row.ratio, word=row.word),
        blocks.cell("-" if value is None else bytes_text(value), value),
        blocks.cell(f"{row.outcome}: {row.reason}" if row.reason else row.outcome),
    ]


def _ratios(plane: Plane, paper: PublishedGrid | None) -> Iterator[Block]:
    for level in plane.levels:
        if level != "eager":
            said = f"{level}{_of(plane)}: time over eager's; below 1 is faster"
            yield _map(plane, level, said)
    under = published_plane(paper, plane)
    if under is not None and paper is not None:
        yield blocks.paragraph(f"The same of {reference(paper).removesuffix('.')}:", style="note")
        for level in under.levels:
            if level != "eager":
                said = f"{level}{_of(plane)}, as published: time over eager's"
                yield _map(under, level, said)


def _map(plane: Plane, level: str, caption: str) -> Block:
    found = plane.of(level)

    def cell(x: Place, y: Place) -> Block:
        row = found.get((x, y))
        if row is None or row.ratio is None:
            return blocks.cell("" if row is None else SIGNS[row.outcome])
        unclear = "?" if row.word == "unclear" else ""
        heat = max(0.0, min(1.0, 1 - row.ratio))
        return blocks.cell(f"{ratio_text(row.ratio)}{unclear}", row.ratio, heat=heat)

    rows = [
        [blocks.cell(tick_text(plane.y, y), _order(y)), *(cell(x, y) for x in plane.xs)]
        for y in plane.ys
    ]
    return blocks.table(caption, _heads(plane), rows)


def _heads(plane: Plane) -> list[Block]:
    heads = [blocks.column(f"{plane.y} \\ {plane.x}", number=False)]
    return heads + [blocks.column(tick_text(plane.x, x)) for x in plane.xs]


def _order(place: Place) -> float | None:
    return float(place) if isinstance(place, int) else None


# ---------------------------------------------------------------- times and cells


def _cuts(plane: Plane) -> Iterator[Block]:
    """Time a sample along each axis of numbers, at the middle of the other one."""
    drawn = 0
    for axis, other in ((plane.x, plane.y), (plane.y, plane.x)):
        if not plane.is_numeric(axis):
            continue
        places = plane.places(other)
        middle = places[len(places) // 2]
        lines = [line for level in plane.levels if (line := _line(plane, level, axis, middle))]
        if lines:
            drawn += 1
            title = f"Seconds a sample by {axis}, at {place_text(other, middle)}"
            chart = blocks.chart(title, axis, "seconds a sample", lines, from_zero=False)
            yield {**chart, "logAcross": True, "logUp": True}
    if not drawn:
        yield blocks.paragraph("No axis has several numbers.", style="note")


def _line(plane: Plane, level: str, axis: str, middle: Place) -> Block | None:
    found = plane.of(level)
    points, band = [], []
    for place in plane.xs if axis == plane.x else plane.ys:
        row = found.get((place, middle) if axis == plane.x else (middle, place))
        value = TIME.of(row) if row is not None else None
        if value is not None and isinstance(place, int):
            points.append((float(place), value.middle))
            band.append((float(place), value.low, value.high))
    return blocks.line(level, points, band) if points else None


def _all(rows: Sequence[StudyRow]) -> Block:
    axes = ("model", "mode", "precision", "threads", "batch", "resolution")
    several = [axis for axis in axes if len({getattr(row, axis) for row in rows}) > 1]
    columns = [blocks.column(axis, number=axis in ("batch", "resolution")) for axis in several]
    columns += [blocks.column("level", number=False)]
    columns += map(blocks.column, ("time", "interval", "over eager", "memory"))
    columns += [blocks.column("became", number=False)]

    def line(row: StudyRow) -> list[Block]:
        places = [getattr(row, axis) for axis in several]
        texts = [place_text(axis, place) for axis, place in zip(several, places, strict=True)]
        first = [blocks.cell(t, _order(p)) for t, p in zip(texts, places, strict=True)]
        return [*first, *_cells(row)]

    return blocks.table("Every level in every cell", columns, map(line, rows))

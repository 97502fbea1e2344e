"""A plane of a study as lines over one axis, as surfaces over both, and where levels cross."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from golow.report.page import blocks
from golow.report.page.blocks import Block
from golow.report.published import PublishedGrid
from golow.report.study.crossover import Crossing, crossings
from golow.report.study.cuts import Cut, middle_cut
from golow.report.study.maps import middle
from golow.report.study.measures import MEASURES, Measure, is_measured, ratio_text
from golow.report.study.planes import (
    LABELS,
    Axis,
    Plane,
    place_text,
    published_plane,
    tick_text,
)
from golow.report.study.rows import SIGNS, StudyRow
from golow.report.study.surfaces import has_surface


def cuts(plane: Plane, paper: PublishedGrid | None) -> Iterator[Block]:
    """For each measure and numeric axis the lines at a value of the other axis, which the reader
    chooses."""
    under = published_plane(paper, plane)
    axes = [axis for axis in (plane.x, plane.y) if plane.is_numeric(axis)]
    shown = [measure for measure in MEASURES if is_measured(plane, measure)]
    for measure in shown:
        yield blocks.side_by_side(_cuts_over(plane, measure, axis, under) for axis in axes)
    if not axes or not shown:
        yield blocks.paragraph("No axis has several numbers.", style="note")
    elif under is not None and paper is not None:
        said = f"Dashed: {paper.where}. Bands are 95% intervals."
        yield blocks.paragraph(said, style="note")


def _cuts_over(plane: Plane, measure: Measure, axis: Axis, under: Plane | None) -> Block:
    first = middle_cut(plane, axis)
    every = [Cut(plane, axis, at) for at in plane.places(first.other)]
    shown = [cut for cut in every if cut.has(measure)]
    options = [(cut.title, _cut(cut, measure, under)) for cut in shown]
    number = next((n for n, cut in enumerate(shown) if cut.at == first.at), 0)
    return blocks.choice(f"{measure.title} by {LABELS[axis]}", options, number)


def _cut(cut: Cut, measure: Measure, under: Plane | None) -> Block:
    lines = [_line(cut, level, measure) for level in cut.plane.levels]
    if under is not None:
        paper = cut._replace(plane=under)
        lines += [
            {
                **_line(paper, level, measure),
                "name": f"{level}, 2020",
                "dashed": True,
                "plain": True,
            }
            for level in under.levels
        ]
    shown = [line for line in lines if line["points"]]
    title = f"{measure.title} by {cut.axis}, {cut.title}"
    chart = blocks.chart(title, LABELS[cut.axis], measure.title, shown, from_zero=False)
    return {**chart, "logAcross": True, "logUp": measure.base > 0, "ticks": _ticks(measure, shown)}


def _ticks(measure: Measure, lines: Sequence[Block]) -> list[tuple[float, str]]:
    """Round values of the measure's own unit."""
    values = [y for line in lines for _, y in line["points"]]
    values += [end for line in lines for _, *ends in line["band"] for end in ends]
    if not values:
        return []
    return [(tick, measure.text(tick)) for tick in measure.ticks(min(values), max(values))]


def _line(cut: Cut, level: str, measure: Measure) -> Block:
    numbers = zip(*cut.numbers(level, measure), strict=True)
    known = [tuple(map(float, one)) for one in numbers if np.isfinite(one).all()]
    points = [(x, value) for x, value, _, _ in known]
    return blocks.line(level, points, [(x, low, high) for x, _, low, high in known])


# ---------------------------------------------------------------- surfaces


def surfaces(plane: Plane, paper: PublishedGrid | None) -> Iterator[Block]:
    """Each measure over both axes, to turn, beside the published one; none for a plane that has no
    numbers on both."""
    if not has_surface(plane):
        return
    under = published_plane(paper, plane)
    options = []
    for measure in MEASURES:
        if is_measured(plane, measure):
            pair = [(plane, "")]
            if under is not None and paper is not None and is_measured(under, measure):
                pair.append((under, f", {paper.where}"))
            made = (_surface(one, measure, said) for one, said in pair)
            options.append((measure.title, blocks.side_by_side(made)))
    if options:
        said = "Drag a surface to turn it, or use the arrow keys; levels can be switched."
        yield blocks.paragraph(said, style="note")
        yield blocks.choice("Over both axes", options)


def _surface(plane: Plane, measure: Measure, said: str) -> Block:
    grids = [plane.grid(level, middle(measure)) for level in plane.levels]
    known = np.concatenate([grid[np.isfinite(grid)] for grid in grids])
    ticks = measure.ticks(float(known.min()), float(known.max()))

    def height(row: StudyRow | None) -> tuple[float | None, str]:
        value = measure.of(row) if row is not None else None
        if value is None:
            return None, "" if row is None else SIGNS[row.outcome]
        return value.middle, measure.text(value.middle)

    def rows_of(level: str) -> Iterator[list[tuple[float | None, str]]]:
        rows = plane.of(level)
        return ([height(rows.get((x, y))) for x in plane.xs] for y in plane.ys)

    return blocks.surface(
        f"{measure.title}{said}",
        (LABELS[plane.x], LABELS[plane.y], measure.title),
        ([int(x or 0) for x in plane.xs], [int(y or 0) for y in plane.ys]),
        [(tick, measure.text(tick)) for tick in ticks],
        ((level, rows_of(level)) for level in plane.levels),
        logarithmic=measure.base > 0,
    )


# ---------------------------------------------------------------- crossover


def crossover(plane: Plane) -> Iterator[Block]:
    """Along each numeric axis, where a level's time passes eager's; a chart if both axes have
    numbers, and a sentence for a level that never does."""
    for axis, other in ((plane.x, plane.y), (plane.y, plane.x)):
        if not plane.is_numeric(axis):
            continue
        found = {
            level: list(crossings(plane, level, axis)) for level in plane.levels if level != "eager"
        }
        crossing = [level for level, ones in found.items() if ones]
        if not crossing:
            continue
        who = f"{crossing[0]}'s" if len(crossing) == 1 else "a level's"
        said = f"{LABELS[axis]} at which {who} time passes eager's; hollow: unclear"
        if plane.is_numeric(other):
            lines = [
                _crossing_dots(level, ones, axis, other) for level, ones in found.items() if ones
            ]
            chart = blocks.chart(said, LABELS[other], LABELS[axis], lines, from_zero=False)
            yield {**chart, "logAcross": True, "logUp": True}
        rows = [
            [
                blocks.cell(level, colour=blocks.level_colour(level)),
                blocks.cell(tick_text(other, one.at)),
                blocks.cell(f"{one.value:.3g}", one.value),
                blocks.cell(_word(one), word=_word(one)),
            ]
            for level, ones in found.items()
            for one in ones
        ]
        titles = ["level", other, f"passes eager at {axis}", "beyond it"]
        columns = [blocks.column(titles[0], number=False), *map(blocks.column, titles[1:3])]
        columns.append(blocks.column(titles[3], number=False))
        yield blocks.folded(
            f"The same in numbers, {len(rows)}", [blocks.table(said, columns, rows)]
        )
    yield from _never(plane)


def _word(one: Crossing) -> str:
    if not one.clear:
        return "unclear"
    return "faster" if one.faster else "slower"


def _crossing_dots(level: str, found: Sequence[Crossing], axis: Axis, other: Axis) -> Block:
    texts = [
        f"{level}: {place_text(other, one.at)}: passes eager at {axis} {one.value:.3g}"
        for one in found
    ]
    points = [(float(one.at or 0), one.value) for one in found]
    unclear = {number: "unclear" for number, one in enumerate(found) if not one.clear}
    return blocks.dots(level, points, [5.0] * len(points), texts, unclear)


def _never(plane: Plane) -> Iterator[Block]:
    """The levels that are on one side of eager in every cell with a ratio."""
    for level in plane.levels:
        ratios = [row.ratio for row in plane.rows if row.level == level and row.ratio is not None]
        if level == "eager" or not ratios or min(ratios) < 1 < max(ratios):
            continue
        side = "less" if max(ratios) <= 1 else "more"
        ends = f"{ratio_text(min(ratios))} to {ratio_text(max(ratios))}"
        yield blocks.paragraph(f"{level} takes {side} time than eager in every cell: {ends} of it.")

"""A study as sections: the fastest level of every cell, every level against eager and its measured
values as maps whose cells open to their comparison, where levels cross, lines, surfaces, and all
cells."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from golow.report.page import blocks
from golow.report.page.blocks import Block
from golow.report.page.study_cells import comparison_of, every_cell, order_of
from golow.report.page.study_curves import crossover, cuts, surfaces
from golow.report.published import PublishedGrid
from golow.report.study.border import between
from golow.report.study.caption import machine, reference
from golow.report.study.cells import MEANINGS
from golow.report.study.maps import known, limits, middle, sides_of
from golow.report.study.measures import MAPPED, RATIO, TIME, Measure, is_measured, ratio_text
from golow.report.study.planes import (
    Place,
    Plane,
    place_text,
    planes,
    published_plane,
    tick_text,
)
from golow.report.study.rows import SIGNS, StudyRow

Places = tuple[Place, Place]
Cell = Callable[[Place, Place], Block]
Shade = Callable[[StudyRow], float]


def title(rows: Sequence[StudyRow]) -> str:
    """Title of its page; there is at least one row."""
    return f"Study {rows[0].study}"


def sections(
    rows: Sequence[StudyRow], name: str, paper: PublishedGrid | None = None
) -> list[Block]:
    """name: prefix of the sections' anchors. paper: published values, shown beside the study's."""
    shown = planes(rows)
    made = [blocks.section(f"{name}-answer", "Answer", _answer(shown))]
    for number, plane in enumerate(shown):
        of, own = _of(plane), f"{name}-{number}"
        opens = {at: f"{own}-{place}" for place, at in enumerate(_by_place(plane))}
        parts = {
            opens[at]: comparison_of(found, _title(plane, at))
            for at, found in _by_place(plane).items()
        }
        fastest = _fastest(plane, paper, opens)
        made.append(blocks.section(f"{own}-fastest", f"The fastest level{of}", fastest, parts))
        ratios = _ratios(plane, paper, opens)
        made.append(blocks.section(f"{own}-ratio", f"Against eager{of}", ratios))
        values = _measures(plane, paper, opens)
        made.append(blocks.section(f"{own}-measures", f"Measured values{of}", values))
        made.append(blocks.section(f"{own}-crossover", f"Crossover{of}", crossover(plane)))
        made.append(blocks.section(f"{own}-cuts", f"Cuts{of}", cuts(plane, paper)))
        made.append(blocks.section(f"{own}-surfaces", f"Surfaces{of}", surfaces(plane, paper)))
    made.append(blocks.section(f"{name}-cells", "Every cell", [every_cell(rows)]))
    return [section for section in made if section["blocks"]]


def _of(plane: Plane) -> str:
    fixed = ", ".join(place_text(axis, place) for axis, place in plane.fixed.items())
    return f" ({fixed})" if fixed else ""


def _by_place(plane: Plane) -> dict[Places, list[StudyRow]]:
    """The levels of each cell."""
    found: dict[Places, list[StudyRow]] = {}
    for row in plane.rows:
        found.setdefault((getattr(row, plane.x), getattr(row, plane.y)), []).append(row)
    return found


def _title(plane: Plane, at: Places) -> str:
    return f"{place_text(plane.y, at[1])}, {place_text(plane.x, at[0])}{_of(plane)}"


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


def _winners(plane: Plane) -> dict[Places, StudyRow]:
    """The row with the least time in each cell, by its places."""
    found: dict[Places, StudyRow] = {}
    for at, rows in _by_place(plane).items():
        timed = [(value.middle, row.level, row) for row in rows if (value := TIME.of(row))]
        if timed:
            found[at] = min(timed, key=lambda one: one[:2])[2]
    return found


# ---------------------------------------------------------------- maps


def _fastest(
    plane: Plane, paper: PublishedGrid | None, opens: dict[Places, str]
) -> Iterator[Block]:
    yield blocks.paragraph(
        "Click a cell for its comparison. A heavy line is the crossover: on its other side another "
        "level is fastest.",
        style="note",
    )
    under = published_plane(paper, plane)
    made = [_fastest_map(plane, f"By {plane.y} and {plane.x}{_of(plane)}", opens)]
    if under is not None and paper is not None:
        made.append(_fastest_map(under, f"As published: {paper.where}{_of(plane)}", {}))
    yield blocks.side_by_side(made)


def _fastest_map(plane: Plane, caption: str, opens: dict[Places, str]) -> Block:
    won = _winners(plane)

    def cell(x: Place, y: Place) -> Block:
        row = won.get((x, y))
        part = opens.get((x, y), "")
        if row is None:
            return blocks.cell("-" if part else "", opens=part)
        ratio = "" if row.ratio is None else f"\n{ratio_text(row.ratio)} of eager"
        colour = blocks.level_colour(row.level)
        return blocks.cell(f"{row.level}{ratio}", row.ratio, colour=colour, opens=part)

    levels = {at: row.level for at, row in won.items()}
    return _map(plane, caption, cell, levels)


def _ratios(plane: Plane, paper: PublishedGrid | None, opens: dict[Places, str]) -> Iterator[Block]:
    yield blocks.paragraph(
        "Time over eager's; below 1 is faster. A heavy line is drawn where a level stops being "
        "faster; ? is unclear, a number from too few rounds has no colour. Click a cell for its "
        "comparison.",
        style="note",
    )
    under = published_plane(paper, plane)
    for level in plane.levels:
        if level == "eager":
            continue
        made = [_ratio_map(plane, level, f"{level}{_of(plane)}", opens)]
        if under is not None and paper is not None and level in under.levels:
            made.append(
                _ratio_map(under, level, f"{level}, as published: {paper.where}{_of(plane)}", {})
            )
        yield blocks.side_by_side(made)
    if under is not None and paper is not None:
        yield blocks.paragraph(f"Published: {reference(paper)}", style="note")


def _ratio_map(plane: Plane, level: str, caption: str, opens: dict[Places, str]) -> Block:
    found, sides = plane.of(level), sides_of(plane, level)
    line = np.sign(between(sides, plane.grid(level, middle(RATIO))))  # as in the figure

    def cell(x: Place, y: Place) -> Block:
        row, part = found.get((x, y)), opens.get((x, y), "")
        if row is None or row.ratio is None:
            return blocks.cell("" if row is None else SIGNS[row.outcome], opens=part)
        unclear = "?" if row.word == "unclear" else ""
        heat = 0.0 if RATIO.is_open(row) else max(0.0, min(1.0, 1 - row.ratio))
        return blocks.cell(f"{ratio_text(row.ratio)}{unclear}", row.ratio, heat=heat, opens=part)

    known = {
        (x, y): float(line[down, right])
        for down, y in enumerate(plane.ys)
        for right, x in enumerate(plane.xs)
        if np.isfinite(line[down, right])
    }
    return _map(plane, caption, cell, known)


def _measures(
    plane: Plane, paper: PublishedGrid | None, opens: dict[Places, str]
) -> Iterator[Block]:
    """Maps of the measure that the reader chooses, one per level."""
    shown = [measure for measure in MAPPED if is_measured(plane, measure)]
    if not shown:
        return
    yield blocks.paragraph(
        "The stronger a cell's colour, the larger its value, on one scale for all levels; a number "
        "from too few rounds has no colour. "
        f"{_signs(plane, shown)}Click a cell for its comparison.",
        style="note",
    )
    maps = ((measure.title, _measure_maps(plane, paper, measure, opens)) for measure in shown)
    yield blocks.choice("Measure", maps)
    yield blocks.facts((measure.title, measure.how(plane.rows)) for measure in shown)


def _signs(plane: Plane, measures: Sequence[Measure]) -> str:
    """Signs in cells without a value, with their meaning."""
    met = {row.outcome for row in plane.rows if not all(measure.of(row) for measure in measures)}
    signs = [
        f"{sign}: {MEANINGS.get(outcome, outcome)}"
        for outcome, sign in SIGNS.items()
        if outcome in met
    ]
    return f"{'; '.join(signs)}; a cell's comparison has the reason. " if signs else ""


def _measure_maps(
    plane: Plane, paper: PublishedGrid | None, measure: Measure, opens: dict[Places, str]
) -> Block:
    """Every level's map, with the published one beside it."""
    under = published_plane(paper, plane)
    drawn = [(plane, _of(plane), opens)]
    if under is not None and paper is not None and is_measured(under, measure):
        drawn.append((under, f", as published: {paper.where}{_of(plane)}", {}))
    shade = _shade([one for one, _, _ in drawn], measure)
    return blocks.side_by_side(
        blocks.side_by_side(
            _measure_map(one, level, measure, said, shade, parts)
            for one, said, parts in drawn
            if level in one.levels
        )
        for level in plane.levels
    )


def _shade(drawn: Sequence[Plane], measure: Measure) -> Shade:
    """From 0 for the least to 1 for the most of all levels, as in the figure."""
    values = (one.grid(level, known(measure)) for one in drawn for level in one.levels)
    turn = math.log if measure.base else float
    low, high = map(turn, limits(values, measure))

    def shade(row: StudyRow) -> float:
        value = known(measure)(row)
        share = 0.0 if value is None else (turn(value) - low) / (high - low)
        return round(max(0.0, min(1.0, share)), 3)

    return shade


def _measure_map(
    plane: Plane, level: str, measure: Measure, said: str, shade: Shade, opens: dict[Places, str]
) -> Block:
    """said: the end of the caption."""
    found = plane.of(level)

    def cell(x: Place, y: Place) -> Block:
        row, part = found.get((x, y)), opens.get((x, y), "")
        value = None if row is None else measure.of(row)
        if row is None or value is None:
            return blocks.cell("" if row is None else SIGNS[row.outcome], opens=part)
        text = measure.text(value.middle)
        return blocks.cell(text, value.middle, heat=shade(row), opens=part)

    return _map(plane, f"{level}: {measure.title}{said}", cell, {})


def _map(plane: Plane, caption: str, cell: Cell, sides: Mapping[Places, object]) -> Block:
    """sides: where the cells of two neighbours have different ones, a line stands between them."""
    heads = [blocks.column(f"{plane.y} \\ {plane.x}", number=False)]
    heads += [blocks.column(tick_text(plane.x, x)) for x in plane.xs]

    def row(down: int, y: Place) -> list[Block]:
        cells = [
            {**cell(x, y), "edges": list(_edges(plane, sides, right, down))}
            for right, x in enumerate(plane.xs)
        ]
        return [blocks.cell(tick_text(plane.y, y), order_of(y)), *cells]

    rows = [row(down, y) for down, y in enumerate(plane.ys)]
    return {**blocks.table(caption, heads, rows), "map": True}


def _edges(plane: Plane, sides: Mapping[Places, object], right: int, down: int) -> Iterator[str]:
    own = sides.get((plane.xs[right], plane.ys[down]))
    for name, x, y in (("left", right - 1, down), ("top", right, down - 1)):
        if x >= 0 and y >= 0:
            other = sides.get((plane.xs[x], plane.ys[y]))
            if own is not None and other is not None and own != other:
                yield name

"""The way down of a layer: for each level the frames from the call to the vendor's entry as boxes
below one another, and the same in numbers.

What was counted is the call as a whole: the instructions before the entry, in it, and after it. A
frame between them has no count of its own; its box is as wide as the call that it is part of.
"""

from __future__ import annotations

from collections.abc import Iterator

from golow.programs.profiling.way_down.way_down_record import LevelWay, WayDown
from golow.report.page import blocks
from golow.report.page.blocks import Block
from golow.report.profiling.way_down import NOTE, PYTHON, short_name, way_table
from golow.report.units import share_text

COLOURS = {PYTHON: "#56B4E9", "interpreter": "#009E73", "C++": "#E69F00", "vendor": "#D55E00"}
REST = "#C8C8C8"
Box = tuple[float, float, str, str]


def blocks_of(way: WayDown) -> Iterator[Block]:
    """A flame graph per level, the numbers of all of them, and their frames to search."""
    inputs = ", ".join(f"{item.dtype} {list(item.shape)}" for item in way.inputs)
    yield blocks.paragraph(f"{way.layer} is a {way.operation}; its input is {inputs}.")
    counted = [level for level in way.levels if not level.missing]
    if counted:
        yield blocks.table_of(way_table(counted), "One call of the layer")
        yield blocks.paragraph(NOTE, style="note")
        yield blocks.paragraph(
            "Below, the outermost frame is on top. Only the whole call and its entry are counted: "
            "a frame between them is drawn as wide as the call.",
            style="note",
        )
        yield blocks.side_by_side(_flame(level) for level in counted)
        yield blocks.folded("Frames under their whole names", [_frames(counted)])
    for level in way.levels:
        if level.missing:
            yield blocks.paragraph(f"{level.level} was not counted: {level.missing}", style="note")


def _flame(level: LevelWay) -> Block:
    whole = level.before + level.inside + level.after
    rows: list[list[Box]] = [[(0.0, 1.0, REST, f"the call: {whole:,} instructions")]]
    rows += [[(0.0, 1.0, COLOURS[PYTHON], f"{f.name} ({f.place})")] for f in level.python]
    if level.interpreter:
        said = f"{level.interpreter} frames of Python's interpreter"
        rows.append([(0.0, 1.0, COLOURS["interpreter"], said)])
    rows += [
        [(0.0, 1.0, COLOURS["C++"], f"{short_name(f.name)} ({f.place})")] for f in level.native
    ]
    if level.entry is not None and whole:
        rows.append(list(_last(level, whole)))
    return blocks.flame(f"{level.level}: from the call down", rows)


def _last(level: LevelWay, whole: int) -> Iterator[Box]:
    """Instructions before the entry, in it, and after it."""
    entry = short_name(level.entry.name) if level.entry else ""
    begun = 0
    for count, colour, what in (
        (level.before, REST, "before the entry"),
        (level.inside, COLOURS["vendor"], f"{level.owner}: {entry}"),
        (level.after, REST, "between entries and after"),
    ):
        said = f"{what}: {count:,} instructions, {share_text(count / whole)}"
        if count:
            yield begun / whole, (begun + count) / whole, colour, said
        begun += count


def _frames(counted: list[LevelWay]) -> Block:
    """Every frame under its whole name."""
    columns = [blocks.column(title, number=False) for title in ("frame", "kind", "place", "level")]
    columns.append(blocks.column("depth"))
    rows = [
        [
            blocks.cell(frame.name),
            blocks.cell(kind),
            blocks.cell(frame.place),
            blocks.cell(level.level, colour=blocks.level_colour(level.level)),
            blocks.cell(str(depth), depth),
        ]
        for level in counted
        for depth, (kind, frame) in enumerate(
            [
                *((PYTHON, frame) for frame in level.python),
                *(("C++", frame) for frame in level.native),
                *([(level.owner, level.entry)] if level.entry else []),
            ],
            1,
        )
    ]
    return blocks.table("Frames, the outermost first", columns, rows, filtered=True)

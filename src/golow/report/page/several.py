"""Several comparisons as one section: how each level's time changed from the first to the others.

Only what may be compared: the same workload on comparable machines. For the rest, why not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from golow.comparison.changes import Change, changes
from golow.comparison.store import require_alike
from golow.record import Comparison, GolowError
from golow.report.page import blocks
from golow.report.page.blocks import Block
from golow.report.units import seconds_text


def sections(found: Sequence[Comparison]) -> list[Block]:
    """One section; none for a single comparison."""
    if len(found) < 2:
        return []
    return [blocks.section("several", "From one record to the next", _several(found))]


def _several(found: Sequence[Comparison]) -> Iterator[Block]:
    first, alike = found[0], []
    for other in found[1:]:
        try:
            require_alike([first, other], "")
            alike.append(other)
        except GolowError as error:
            yield blocks.paragraph(error.message, style="note")
    if alike:
        yield _matrix(first, alike)


def _matrix(first: Comparison, others: Sequence[Comparison]) -> Block:
    """A row a level: its time in the first record, and the change to each other one."""
    known = {other.id: {one.level: one for one in changes(first, other).levels} for other in others}
    times = {run.level: run.time.value for run in first.runs if run.time is not None}
    levels = dict.fromkeys([*times, *(level for found in known.values() for level in found)])
    columns = [blocks.column("level", number=False), blocks.column(first.id)]
    columns += [blocks.column(other.id) for other in others]

    def row(level: str) -> list[Block]:
        time = times.get(level)
        said = "-" if time is None else seconds_text(time)
        cells = [blocks.cell(level, colour=blocks.level_colour(level)), blocks.cell(said, time)]
        return cells + [_change(known[other.id].get(level)) for other in others]

    return blocks.table(
        "Time in the first record, and the change to each later one with its 95% interval",
        columns,
        map(row, levels),
    )


def _change(one: Change | None) -> Block:
    if one is None or one.ratio is None:
        return blocks.cell("-" if one is None else one.verdict)
    ratio = one.ratio
    ends = f"{100 * (ratio.low - 1):+.1f} to {100 * (ratio.high - 1):+.1f}%"
    text = f"{100 * (ratio.value - 1):+.1f}% {ratio.word}\n{ends}"
    return blocks.cell(text, ratio.value, word=ratio.word)

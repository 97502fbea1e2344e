"""A life cycle as a section: which level for how many iterations, with a slider."""

from __future__ import annotations

from collections.abc import Iterator

from golow.programs.life.life_record import LifeCycle
from golow.programs.life.stages import break_evens, curves, uses
from golow.report.life.remarks import caches, remarks
from golow.report.life.table import change_table, held_table, stage_table
from golow.report.page import blocks
from golow.report.page.blocks import Block
from golow.report.units import count_text, seconds_text


def sections(found: LifeCycle, name: str) -> list[Block]:
    """name: prefix of the section's anchor."""
    return [blocks.section(f"{name}-life", "How many iterations will you run?", _life(found))]


def _life(found: LifeCycle) -> Iterator[Block]:
    for cache in caches(found):
        known = curves(found, cache)
        if not known:
            continue
        levels = [
            {"name": level, "colour": blocks.level_colour(level), **one._asdict()}
            for level, one in known.items()
        ]
        yield {"kind": "slider", "title": f"With a {cache} cache", "levels": levels}
        rows = [
            [
                blocks.cell(f"{use.iterations:,}", use.iterations),
                blocks.cell(use.level, colour=blocks.level_colour(use.level)),
                blocks.cell(seconds_text(use.seconds), use.seconds),
            ]
            for use in uses(found, cache)
        ]
        heads = [blocks.column("iterations"), blocks.column("use", number=False)]
        yield blocks.table(
            f"From the start of a process to its end, {cache} cache",
            [*heads, blocks.column("total")],
            rows,
        )
        for pair in break_evens(found, cache):
            if pair.iterations is not None:
                count = count_text(pair.iterations)
                yield blocks.paragraph(f"{pair.level} overtakes {pair.other} at {count} iterations")
    lived = [level for level in found.levels if level.lives]
    for cache in caches(found):
        said = f"Stages of a life, {cache} cache"
        yield blocks.table_of(stage_table(lived, cache), said)
    if lived:
        said = "Time to the first result, memory and energy of a life cycle"
        yield blocks.table_of(held_table(lived), said)
    if any(level.changes for level in lived):
        yield blocks.table_of(change_table(lived), "Another batch size while it runs")
    for remark in remarks(found):
        yield blocks.paragraph(remark, style="note")

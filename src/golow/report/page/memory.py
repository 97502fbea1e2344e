"""The memory of a step: bytes by category over time, the peaks, and the largest blocks."""

from __future__ import annotations

from collections.abc import Iterator

from golow.programs.profiling.memory import MemoryProfile
from golow.programs.profiling.profile_record import Profile
from golow.report.page import blocks
from golow.report.page.blocks import Block
from golow.report.profiling.memory import block_table, peak_table
from golow.report.profiling.memory_figures import COLOURS, held_over_time
from golow.report.units import bytes_text

MOST_BLOCKS = 200


def blocks_of(found: Profile) -> Iterator[Block]:
    """Every level with a memory profile, and why another one has none."""
    known = [(level.level, level.memory) for level in found.levels if level.memory is not None]
    yield blocks.table_of(peak_table(known), "At the peak of a step")
    for name, memory in known:
        yield _over_time(name, memory)
        caption = f"{name}: the largest of {len(memory.blocks):,} blocks"
        largest = blocks.table_of(block_table(memory, MOST_BLOCKS), caption)
        yield blocks.folded(caption, [largest])
    for level in found.levels:
        if level.memory is None:
            reason = level.memory_missing or "not recorded"
            yield blocks.paragraph(f"{level.level}: no memory profile: {reason}", style="note")


def _over_time(name: str, memory: MemoryProfile) -> Block:
    held = held_over_time(memory)
    limit = None
    if held.reserved is not None:
        limit = (held.reserved, f"{bytes_text(memory.reserved)} reserved")
    return blocks.area(
        f"{name}: memory by category over one step",
        (held.across, held.up),
        held.moments,
        [(part, COLOURS[part], values) for part, values in held.categories.items()],
        mark=(*held.peak, f"peak {bytes_text(memory.peak.bytes)}"),
        limit=limit,
    )

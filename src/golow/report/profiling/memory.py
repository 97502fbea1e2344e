"""The memory of a step as tables: the peak by category, a column per level, and the largest blocks
of each level."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.programs.profiling.memory import CATEGORIES, Block, MemoryProfile
from golow.programs.profiling.profile_record import LevelProfile
from golow.report.units import MISSING, TOP, bytes_text, seconds_text, share_text


def render_memory(levels: Sequence[LevelProfile], top: int, console: Console) -> None:
    """Print the peaks of all levels side by side, then the largest blocks of each."""
    found = [(level.level, level.memory) for level in levels if level.memory is not None]
    console.print()
    if found:
        console.print(Text("Memory of a step, at its peak", style="bold"))
        console.print(peak_table(found))
    for level in levels:
        if level.memory is None:
            reason = level.memory_missing or "not recorded"
            console.print(Text(f"{level.level}: no memory profile: {reason}"))
    for name, memory in found:
        console.print()
        console.print(Text(f"{name}: largest of {len(memory.blocks)} blocks", style="bold"))
        console.print(block_table(memory, top))


# ---------------------------------------------------------------- peaks


def peak_table(found: Sequence[tuple[str, MemoryProfile]]) -> Table:
    """One row per category, then allocated and reserved bytes, and the moment of the peak."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", max_width=17)
    for name, _ in found:
        table.add_column(name, justify="right")
    peaks = [memory.peak for _, memory in found]
    for category in CATEGORIES:
        if any(peak.categories.get(category) for peak in peaks):
            table.add_row(category, *(_size(peak.categories.get(category, 0)) for peak in peaks))
    table.add_row("allocated", *(bytes_text(peak.bytes) for peak in peaks), style="bold")
    table.add_row("reserved", *(bytes_text(memory.reserved) for _, memory in found))
    table.add_row("peak at this share of the step", *(_share(memory) for _, memory in found))
    table.add_row("in phase", *(_during(memory)[0] for _, memory in found))
    table.add_row("in layer", *(_during(memory)[1] for _, memory in found))
    return table


def _size(size: int) -> str:
    return bytes_text(size) if size else "-"


def _share(memory: MemoryProfile) -> str:
    """When the peak is, in time where that is known."""
    moment, length = memory.peak.moment, memory.length
    if memory.seconds:
        moment, length = memory.seconds[int(moment)], memory.seconds[-1]
    return share_text(moment / length) if length else "-"


def _during(memory: MemoryProfile) -> tuple[str, str]:
    """Phase and layer of the allocation that made the peak."""
    made = [block for block in memory.blocks if block.first == memory.peak.moment and block.phase]
    return (made[0].phase, made[0].layer or TOP) if made else ("-", "-")


# ---------------------------------------------------------------- the largest blocks


def block_table(memory: MemoryProfile, top: int) -> Table:
    """The largest blocks of a level."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("category", no_wrap=True)
    table.add_column("tensor, or operator", overflow="fold", max_width=30)
    table.add_column("layer", overflow="fold", max_width=18)
    table.add_column("from", justify="right", no_wrap=True)
    table.add_column("until", justify="right", no_wrap=True)
    for block in memory.blocks[:top]:
        table.add_row(
            bytes_text(block.bytes),
            block.category,
            Text(block.name or block.operator),
            Text(block.layer or (TOP if block.phase else MISSING)),
            *_lifetime(memory, block),
        )
    rest = len(memory.blocks) - top
    if rest > 0:
        table.add_row("", Text(f"and {rest} more", style="dim"), "", "", "", "")
    return table


def _lifetime(memory: MemoryProfile, block: Block) -> tuple[str, str]:
    first = "before" if block.first <= 0 and not block.phase else _moment(memory, block.first)
    return first, "after" if block.last >= memory.length else _moment(memory, block.last)


def _moment(memory: MemoryProfile, moment: float) -> str:
    if memory.axis == "seconds":
        return seconds_text(moment)
    return seconds_text(memory.seconds[int(moment)]) if memory.seconds else f"step {moment:.0f}"

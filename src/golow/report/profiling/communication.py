"""Communication between ranks as tables: each rank's times, and the collective operations."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from golow.programs.profiling.communication import Collective, Communication
from golow.report.units import count_text, seconds_text, share_text


def ranks_table(found: Communication) -> Table:
    """One row per rank: how long it communicates, and how much of that is exposed."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("rank")
    for name in ("communication", "exposed", "overlapped", "waits for others", "arrives last"):
        table.add_column(name, justify="right", no_wrap=True)
    for rank, times in enumerate(found.ranks):
        overlap = 1 - times.exposed / times.communication if times.communication else None
        last = sum(one.last[rank] for one in found.collectives) / len(found.collectives)
        table.add_row(
            str(rank),
            seconds_text(times.communication),
            seconds_text(times.exposed),
            share_text(overlap),
            seconds_text(times.waited),
            share_text(last),
        )
    return table


def collectives_table(found: Communication, top: int) -> Table:
    """One row per collective operation, in the order of the step."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("operation")
    table.add_column("of", overflow="fold", max_width=40)
    for name in ("all ranks there", "longest wait", "arrives last"):
        table.add_column(name, justify="right", no_wrap=True)
    for number, one in enumerate(found.collectives[:top], 1):
        longest, last = max(one.waits), max(one.last)
        table.add_row(
            Text(f"{number} {one.name}"),
            Text(_content(one)),
            seconds_text(one.seconds),
            f"rank {one.waits.index(longest)}, {seconds_text(longest)}",
            f"rank {one.last.index(last)}, {share_text(last)}",
        )
    if (rest := len(found.collectives) - top) > 0:
        table.add_row(Text(f"and {rest} more", style="dim"), *[""] * 4)
    return table


def _content(one: Collective) -> str:
    """Return the layers if they are known, otherwise the number of elements."""
    if one.layers:
        first, *others = one.layers
        return f"{first} to {others[-1]}" if others else first
    return f"{count_text(one.elements)} elements" if one.elements else "-"

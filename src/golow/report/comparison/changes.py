"""Two comparisons of one workload as one table, and the line of a gate."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.programs.comparison.changes import Change, Changes, changes, slower_than
from golow.records.comparison import Comparison, Ratio
from golow.report.comparison.columns import STYLES
from golow.report.comparison.table import WIDEST, heading
from golow.report.console import fits, level_text, wide_console
from golow.report.units import bytes_change_text, interval_text, seconds_text


def render_changes(
    before: Comparison, after: Comparison, console: Console | None = None
) -> Changes:
    """Print how each level's time changed, with intervals; returns what was found."""
    console = console or wide_console(WIDEST)
    found = changes(before, after)
    console.print(Text(f"Changes: {heading(after)}", style="bold"))
    console.print(Text(f"before: {before.id}\nafter:  {after.id}; intervals are 95%", style="dim"))
    shown = _table(found.levels)
    console.print(shown if fits(shown, console) else _blocks(found.levels))
    for word, levels in (("before", found.only_before), ("after", found.only_after)):
        if levels:
            console.print(Text(f"only {word}: {', '.join(levels)}"))
    return found


def gate_text(found: Changes, limit: float) -> str:
    """Why the gate closes or stays open, in one line."""
    slow = slower_than(found, limit)
    if slow:
        levels = "; ".join(
            f"{one.level} by {_signed(one.ratio)} ({_range(one.ratio)})"
            for one in slow
            if one.ratio is not None
        )
        return f"gate: failed: slower by more than {limit * 100:.3g}%: {levels}"
    unclear = [one.level for one in found.levels if one.ratio and one.ratio.word == "unclear"]
    open_text = f"gate: passed: no level is slower by more than {limit * 100:.3g}% with confidence"
    return f"{open_text}; unclear: {', '.join(unclear)}" if unclear else open_text


def _table(found: Sequence[Change]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("level", no_wrap=True)
    for title in ("before\n(interval)", "after\n(interval)", "change\n(interval)", "memory"):
        table.add_column(title, justify="right", no_wrap=True)
    for one in found:
        table.add_row(Text(level_text(one.level)), *_cells(one))
    return table


def _blocks(found: Sequence[Change]) -> Text:
    shown = Text()
    for one in found:
        shown.append("\n").append(one.level, style="bold").append("\n")
        for title, cell in zip(("before", "after", "change", "memory"), _cells(one), strict=True):
            shown.append(f"  {title}: ").append_text(Text(", ").join(cell.split("\n")))
            shown.append("\n")
    return shown


def _cells(one: Change) -> tuple[Text, ...]:
    was, now = (
        Text("-" if time is None else f"{seconds_text(time.value)}\n{interval_text(time)}")
        for time in (one.before, one.after)
    )
    earlier, later = one.memory
    memory = "-" if None in one.memory else bytes_change_text((later or 0.0) - (earlier or 0.0))
    return was, now, _change(one), Text(memory)


def _change(one: Change) -> Text:
    if one.ratio is None:
        return Text("-" if one.verdict == "match" else one.verdict, style=STYLES[one.verdict])
    text = Text(f"{_signed(one.ratio)} ").append(one.ratio.word, style=STYLES[one.ratio.word])
    return text.append(f"\n{_range(one.ratio)}")


def _signed(ratio: Ratio) -> str:
    return f"{ratio.value - 1:+.1%}"


def _range(ratio: Ratio) -> str:
    return f"{ratio.low - 1:+.1%} to {ratio.high - 1:+.1%}"

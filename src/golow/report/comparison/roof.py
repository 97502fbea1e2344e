"""The steps of a plan under the machine's roof, as a table of 100 columns at most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.programs.explain.explain_record import Roof, StepRoof
from golow.report.comparison.table import workload_text
from golow.report.console import wide_console
from golow.report.units import (
    bytes_text,
    change_text,
    decimal_text,
    interval_text,
    seconds_text,
    share_text,
)

TOP = 15  # rows
NAME, LAYER, CODE = 20, 24, 15  # characters
WITH_CODE = 96  # characters of a table that has room for what runs a step
BEFORE = ("capture", "build", "load")
NUMBERS = ("time", "lost", "of roof", "moves", "FLOP")
FASTER = (
    "A step that takes less than its roof reads data that is still in a cache, or uses a fast "
    "algorithm; or the machine was busy when its peak was measured."
)


def render(
    roof: Roof, top: int = TOP, console: Console | None = None, *, more: str = "--top"
) -> None:
    """Print the first steps, their share of the whole, and the bytes moved for layout alone.
    more: the option or argument that shows more steps."""
    console = console or wide_console()
    console.print(Text(f"{workload_text(roof.workload)}, {roof.level}", style="bold"))
    peak = roof.peak
    roofs = f"{decimal_text(peak.operations, 'FLOP/s')}, {decimal_text(peak.bytes, 'B/s')}"
    whose = f"the published peaks of {roof.gpu}" if roof.gpu else "the machine's measured peaks"
    console.print(Text(f"{whose}: {roofs}", style="dim"))
    console.print(_table(roof.steps[:top], console.width))
    if len(roof.steps) > top:
        console.print(Text(f"and {len(roof.steps) - top} more steps; {more} shows more"))
    for line in _summary(roof):
        console.print(Text(line))
    if any(step.lost is not None and step.lost < 0 for step in roof.steps):
        console.print(Text(FASTER, style="dim"))
    for note in roof.notes:
        console.print(Text(f"note: {note}", style="dim"))


def roof_rows(roof: Roof) -> list[dict[str, str | float | None]]:
    """One row per step, in the record's order, in seconds and bytes."""
    return [
        {
            "step": step.position,
            "operation": step.operation,
            "layer": step.modules[0],
            "phase": step.phase,
            "by": step.by,
            "seconds": step.seconds,
            "least": step.least,
            "lost": step.lost,
            "bytes": step.bytes,
            "operations": step.operations,
            "bound": step.bound,
            "layout_alone": step.layout_alone,
        }
        for step in roof.steps
    ]


# ---------------------------------------------------------------- implementation


def _table(steps: Sequence[StepRoof], width: int) -> Table:
    measured = any(step.seconds is not None for step in steps)
    numbers = NUMBERS if measured else ("at least", *NUMBERS[3:])
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("operation", overflow="fold", max_width=NAME)
    table.add_column("layer", overflow="fold", max_width=LAYER)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    if width >= WITH_CODE:
        table.add_column("by", overflow="ellipsis", no_wrap=True, max_width=CODE)
    for step in steps:
        cells = [Text(cell) for cell in _cells(step, measured)]
        table.add_row(*cells[: len(table.columns)])
    return table


def _cells(step: StepRoof, measured: bool) -> Iterator[str]:
    layers = f" +{len(step.modules) - 1}" if len(step.modules) > 1 else ""
    yield str(step.position)
    yield step.operation
    yield (step.modules[0] or "(top)") + layers
    if measured:
        yield seconds_text(step.seconds)
        yield change_text(step.lost or 0.0)
        yield share_text(step.least / step.seconds) if step.seconds else "-"
    else:
        yield seconds_text(step.least)
    yield bytes_text(step.bytes)
    yield decimal_text(step.operations, "").strip() if step.operations else "-"
    yield step.by


def _life(roof: Roof) -> Iterator[str]:
    """``capture 0.4 s``, as far as it was measured in seconds."""
    for cost in roof.life:
        if cost.unit == "s" and cost.name in BEFORE:
            cached = " (cached)" if cost.name == "build" and roof.build_cached else ""
            yield f"{cost.name} {seconds_text(cost.value)}{cached}"


def _summary(roof: Roof) -> Iterator[str]:
    least = sum(step.least for step in roof.steps)
    taken = sum(step.seconds or 0.0 for step in roof.steps)
    moved = sum(step.bytes for step in roof.steps)
    text = f"{len(roof.steps)} steps need at least {seconds_text(least)}"
    if taken:
        text += f" and take {seconds_text(taken)}: {share_text(least / taken)} of the roof"
    yield f"{text}."
    if roof.time is not None:
        time = f"{seconds_text(roof.time.value)} ({interval_text(roof.time)})"
        yield f"An iteration without a clock between its steps takes {time}."
    if roof.life:
        yield f"Before its first iteration: {', '.join(_life(roof))}."
    alone = [step for step in roof.steps if step.layout_alone]
    text = f"Moved for layout alone: {bytes_text(roof.layout_bytes)} in {len(alone)} steps"
    text += f", {share_text(roof.layout_bytes / moved if moved else 0.0)} of all bytes"
    if taken:
        text += f" and {share_text(sum(s.seconds or 0.0 for s in alone) / taken)} of the time"
    yield f"{text}."

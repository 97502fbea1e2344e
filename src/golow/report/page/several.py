"""Several comparisons as one section: how each level's time changed from the first to the others.

Only what may be compared: seconds of the same workload on comparable machines. Of the same workload
on another machine, verdicts and the ratio to that machine's own eager. For the rest, why not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from golow.programs.comparison.changes import Change, changes
from golow.programs.comparison.store import require_alike, unlike_workloads
from golow.records.comparison import Comparison, Run
from golow.records.errors import GolowError
from golow.report.page import blocks
from golow.report.page.blocks import Block
from golow.report.units import ratio_text, seconds_text


def sections(found: Sequence[Comparison]) -> list[Block]:
    """One section; none for a single comparison."""
    if len(found) < 2:
        return []
    return [blocks.section("several", "Changes from record to record", _several(found))]


def _several(found: Sequence[Comparison]) -> Iterator[Block]:
    first, alike, elsewhere = found[0], [], []
    for other in found[1:]:
        try:
            require_alike([first, other], "")
            alike.append(other)
        except GolowError as error:
            yield blocks.paragraph(error.message, style="note")
            if not unlike_workloads(first.workload, other.workload):
                elsewhere.append(other)
    if alike:
        yield _matrix(first, alike)
    if elsewhere:
        yield _ratios([first, *elsewhere])


def _ratios(found: Sequence[Comparison]) -> Block:
    """One row per level: its ratio to eager of the same machine, and its verdict."""
    levels = dict.fromkeys(run.level for one in found for run in one.runs)
    columns = [blocks.column("level", number=False)]
    columns += [blocks.column(f"{one.id}\n{_where(one)}") for one in found]
    rows = [
        [
            blocks.cell(level, colour=blocks.level_colour(level)),
            *(_ratio(next((run for run in one.runs if run.level == level), None)) for one in found),
        ]
        for level in levels
    ]
    said = "On several machines: time over eager's of the same machine, with the check's verdict"
    return blocks.table(f"{said}. Their seconds are not compared.", columns, rows)


def _where(found: Comparison) -> str:
    """The part of the machine that runs it."""
    machine = found.runs[0].environment
    on_gpu = found.workload.device == "cuda"
    return " or ".join(dict.fromkeys(machine.gpu)) if on_gpu else machine.cpu_model


def _ratio(run: Run | None) -> Block:
    if run is None or run.ratio is None:
        return blocks.cell("-" if run is None else run.check.verdict)
    ratio = run.ratio
    ends = f"{ratio_text(ratio.low)} to {ratio_text(ratio.high)}"
    text = f"{ratio_text(ratio.value)} {ratio.word}\n{ends}\n{run.check.verdict}"
    return blocks.cell(text, ratio.value, word=ratio.word)


def _matrix(first: Comparison, others: Sequence[Comparison]) -> Block:
    """One row per level: its time in the first record, and the change to each other one."""
    known = [{one.level: one for one in changes(first, other).levels} for other in others]
    times = {run.level: run.time.value for run in first.runs if run.time is not None}
    levels = dict.fromkeys([*times, *(level for found in known for level in found)])
    columns = [blocks.column("level", number=False), blocks.column(first.id)]
    columns += [blocks.column(other.id) for other in others]

    def row(level: str) -> list[Block]:
        time = times.get(level)
        said = "-" if time is None else seconds_text(time)
        cells = [blocks.cell(level, colour=blocks.level_colour(level)), blocks.cell(said, time)]
        return cells + [_change(found.get(level)) for found in known]

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

"""A comparison as a table that fits the terminal, with advice below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import indent

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.lower.ir.graph import Graph
from golow.records.comparison import Comparison, Run
from golow.records.workload import Workload
from golow.report.comparison.advice import advice, offers
from golow.report.comparison.columns import (
    FALLING,
    STYLES,
    Column,
    all_columns,
    chosen_columns,
    verdict_text,
)
from golow.report.comparison.gpu import gpu_text, is_on_gpu, render_gpu, throttled_share
from golow.report.comparison.inputs import inputs_text
from golow.report.comparison.ranks import ranks_text
from golow.report.console import fits, level_text, wide_console
from golow.report.layers import has_layers, render_layers
from golow.report.units import seconds_text, share_text

NARROWEST, WIDEST = 72, 140  # columns of a terminal
CUDNN = ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13")


def render(
    comparison: Comparison,
    console: Console | None = None,
    by_layer: bool | None = None,
    columns: Sequence[str] = (),
) -> None:
    """Print heading, table, advice and notes; then the times by layer if `by_layer` is true, or if
    it is None and the record has them. columns: the names of those wanted, as many as fit unless
    given."""
    console = console or wide_console(WIDEST)
    console.print(Text(heading(comparison), style="bold"))
    console.print(Text(conditions(comparison), style="dim"))
    console.print(fitting(comparison, console, columns))
    for run in comparison.runs:
        if run.check.verdict != "match":
            where = Text(f"{run.level}: {run.check.verdict}", style=STYLES[run.check.verdict])
            console.print(where + Text(f": {run.check.words}", style="not bold default"))
    console.print()
    console.print(Text(advice(comparison)))
    for said, recipe in offers(comparison):
        if said:
            console.print(Text(said))
        console.print(Text(indent(recipe.lines, "  "), style="bold"), soft_wrap=True)
    for footnote in footnotes(comparison):
        console.print(Text(footnote, style="dim"))
    for remark in [*comparison.notes, *_notes_of_levels(comparison)]:
        console.print(Text(f"note: {remark}", style="dim"))
    render_gpu(comparison, console)
    if has_layers(comparison.runs) if by_layer is None else by_layer:
        render_layers(comparison.runs, console)


def _notes_of_levels(comparison: Comparison) -> list[str]:
    """Each note once, behind the levels that have it."""
    levels: dict[str, list[str]] = {}
    for run in comparison.runs:
        for note in run.notes:
            levels.setdefault(note, []).append(run.level)
    return [f"{', '.join(dict.fromkeys(names))}: {note}" for note, names in levels.items()]


def heading(comparison: Comparison) -> str:
    """The workload in one line; on a GPU a second line about the GPU."""
    text = workload_text(comparison.workload)
    return f"{text}\n{gpu_text(comparison)}" if is_on_gpu(comparison) else text


def workload_text(workload: Workload) -> str:
    """The model, mode and inputs in one line."""
    what = {"infer": "inference", "train": "training step"}[workload.mode]
    text = f"{workload.model}, {what}, {inputs_text(workload)}, {workload.parameters:,} parameters"
    return f"{text}{_quantized_text(workload)}"


def _quantized_text(workload: Workload) -> str:
    """The rules of a quantised network, and how many of its layers have each."""
    rules = Counter(layer.rule for layer in workload.source.quantized)
    parts = (f"{rule}, {count} layer{'s' if count != 1 else ''}" for rule, count in rules.items())
    return f", quantised: {'; '.join(parts)}" if rules else ""


def conditions(comparison: Comparison) -> str:
    """The conditions of the measurement in two lines."""
    race, on_gpu = comparison.race, is_on_gpu(comparison)
    slowed = f", {share_text(throttled_share(comparison))} throttled" if on_gpu else ""
    setting = _gpu_software(comparison) if on_gpu else _cpu_setting(comparison)
    if not race.rounds:
        return f"{setting}\nno rounds: {race.stopped_because}"
    ended = race.stopped_because
    return (
        f"{setting}\n"
        f"{race.rounds} round{'s' if race.rounds != 1 else ''} in {race.seconds:.0f} s, "
        f"{ended if ended == 'interrupted' else f'ended by {ended}'}; "
        f"{race.contended_share:.0%} of the blocks contended{slowed}; intervals are 95%"
    )


def _cpu_setting(comparison: Comparison) -> str:
    run = comparison.runs[0]
    cores = ",".join(map(str, run.conditions.affinity))
    return (
        f"{run.environment.cpu_model}, {_threads_text(run)} on cores {cores}, precision "
        f"{run.conditions.precision}, OMP_WAIT_POLICY={run.conditions.wait_policy}, torch "
        f"{run.environment.versions.get('torch', '?')}"
    )


def _gpu_software(comparison: Comparison) -> str:
    run = comparison.runs[0]
    machine = run.environment
    cudnn = [version for name, version in machine.versions.items() if name in CUDNN]
    parts = [
        f"driver {machine.driver or '?'}",
        *(f"cuDNN {version}" for version in cudnn),
        f"torch {machine.versions.get('torch', '?')}",
        machine.cpu_model,
        _threads_text(run),
    ]
    return ", ".join(parts)


def _threads_text(run: Run) -> str:
    return f"{run.conditions.threads} thread{'s' if run.conditions.threads > 1 else ''}"


def footnotes(comparison: Comparison) -> list[str]:
    """The meaning of the marks that the table contains."""
    found = []
    if any(run.conditions.rounds_used == "all" for run in comparison.runs):
        disturbed = "contended or throttled" if is_on_gpu(comparison) else "contended"
        found.append(f"*: too few clean rounds; {disturbed} ones are included")
    if comparison.workload.ranks > 1:
        found.append(ranks_text(comparison))
    if any(run.quantity("device_added") is not None for run in comparison.runs):
        found.append("+: increase of the GPU memory in use since the level started")
    worst = [run.check.worst for run in comparison.runs if run.check.worst is not None]
    zero = dict.fromkeys(tensor.name for tensor in worst if tensor.zero_scale)
    if zero:
        found.append(
            f"^: the exact value of {', '.join(zero)} is zero; the error is relative to the terms "
            f"that cancel"
        )
    return found


def table(comparison: Comparison, columns: Sequence[Column] = ()) -> Table:
    """One row per level, with these columns; all unless given."""
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for title in ("level", "verdict\n(of limit)"):
        result.add_column(title, no_wrap=True)
    columns = columns or all_columns(comparison)
    for column in columns:
        result.add_column(column.title, justify="right", no_wrap=True)
    for run in comparison.runs:
        cells = (Text.assemble(column.cell(run)) for column in columns)
        result.add_row(Text(level_text(run.level)), verdict_text(run), *cells)
    return result


def fitting(comparison: Comparison, console: Console, names: Sequence[str] = ()) -> Table | Text:
    """The table with as many columns as fit the console, or a block of lines per level.

    names: exactly these columns are wanted, so that none drops out. Below `NARROWEST` columns, and
    where what never drops out is too wide, every level is a block.
    """
    if names:
        candidates = [chosen_columns(comparison, names)]
    else:
        columns = all_columns(comparison)
        candidates = [
            tuple(column for column in columns if column.name not in FALLING[:fallen])
            for fallen in range(len(FALLING) + 1)
        ]
    if console.width >= NARROWEST:
        for candidate in candidates:
            shown = table(comparison, candidate)
            if fits(shown, console):
                return shown
    return blocks(comparison, candidates[0])


def blocks(comparison: Comparison, columns: Sequence[Column]) -> Text:
    """A block of lines for each level: its name and verdict, then a line per column."""
    shown = Text()
    for run in comparison.runs:
        shown.append("\n").append(run.level, style="bold").append("\n  ")
        shown.append_text(Text(", ").join(verdict_text(run, " of its limit").split("\n"))).append(
            "\n"
        )
        for column in columns:
            line = column.line(run)
            if line.plain != "-":
                shown.append(f"  {column.label}: ").append_text(line).append("\n")
    return shown


def graph_table(graph: Graph) -> Table:
    """The passes that made the graph, and how often it has each operation."""
    result = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("stage", "nodes", "time"):
        result.add_column(title, justify="left" if title == "stage" else "right")
    for done in graph.history:
        result.add_row(done.name, str(done.nodes), seconds_text(done.seconds))
    result.add_section()
    for op, count in Counter(node.op for node in graph.nodes).most_common():
        result.add_row(op, str(count), "")
    return result

"""A comparison as a table that fits 100 columns, and the sentence under it."""

from __future__ import annotations

from collections import Counter

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.lower.graph import Graph
from golow.record import Comparison, Run
from golow.report.advice import advice
from golow.report.console import wide_console
from golow.report.layers import has_layers, render_layers
from golow.report.units import bytes_text, count_text, interval_text, seconds_text

STYLES = {
    "match": "green",
    "differs": "bold red",
    "failed": "red",
    "unavailable": "dim",
    "faster": "green",
    "slower": "yellow",
    "same": "",
    "unclear": "dim",
}


def render(
    comparison: Comparison, console: Console | None = None, by_layer: bool | None = None
) -> None:
    """Print heading, table, advice and remarks; then the times by layer, if that is wished, or
    unless said otherwise if they were taken."""
    console = console or wide_console()
    console.print(Text(heading(comparison), style="bold"))
    console.print(Text(conditions(comparison), style="dim"))
    console.print(table(comparison))
    for run in comparison.runs:
        if run.check.verdict != "match":
            where = Text(f"{run.level}: {run.check.verdict}", style=STYLES[run.check.verdict])
            console.print(where + Text(f": {run.check.reason}", style="not bold default"))
    console.print()
    console.print(Text(advice(comparison)))
    if any(run.conditions.rounds_used == "all" for run in comparison.runs):
        console.print(Text("*: too few clean rounds; contended ones are among these", style="dim"))
    remarks = [*comparison.notes, *(f"{r.level}: {n}" for r in comparison.runs for n in r.notes)]
    for remark in remarks:
        console.print(Text(f"note: {remark}", style="dim"))
    if has_layers(comparison) if by_layer is None else by_layer:
        render_layers(comparison, console)


def heading(comparison: Comparison) -> str:
    """The workload in one line."""
    workload = comparison.workload
    shapes = ", ".join("x".join(map(str, t.shape)) for t in workload.inputs)
    what = {"infer": "inference", "train": "training step"}[workload.mode]
    dtype = workload.inputs[0].dtype
    return f"{workload.model}, {what}, input {shapes} {dtype}, {workload.parameters:,} parameters"


def conditions(comparison: Comparison) -> str:
    """The conditions of the measurement in two lines."""
    run, race = comparison.runs[0], comparison.race
    machine = run.environment
    cores = ",".join(map(str, run.conditions.affinity))
    threads = f"{run.conditions.threads} thread{'s' if run.conditions.threads > 1 else ''}"
    return (
        f"{machine.cpu_model}, {threads} on cores {cores}, precision "
        f"{run.conditions.precision}, OMP_WAIT_POLICY={run.conditions.wait_policy}, torch "
        f"{machine.versions.get('torch', '?')}\n"
        f"{race.rounds} round{'s' if race.rounds != 1 else ''} in {race.seconds:.0f} s, ended by "
        f"{race.stopped_because}; "
        f"{race.contended_share:.0%} of the blocks contended; intervals are 95%"
    )


def table(comparison: Comparison) -> Table:
    """A row a level."""
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for title in ("level", "verdict\n(error)"):
        result.add_column(title, no_wrap=True)
    for title in (
        "time\n(interval)",
        "over eager\n(interval)",
        "resident\nalloc.",
        "start\nready",
        "build\ntime",
        "artifact\nsize",
        "pays\nafter",
    ):
        result.add_column(title, justify="right", no_wrap=True)
    for run in comparison.runs:
        result.add_row(*_row(run))
    return result


def _row(run: Run) -> list[Text]:
    verdict = run.check.verdict
    name = Text(run.level.replace(":", "\n :"))
    return [
        name,
        Text(verdict + _error_text(run), style=STYLES[verdict]),
        Text(_time_text(run)),
        _ratio_text(run),
        Text(_memory_text(run)),
        Text(seconds_text(run.quantity("ready"))),
        Text(_build_text(run)),
        Text(bytes_text(run.quantity("artifact"))),
        Text(_payback_text(run)),
    ]


def _error_text(run: Run) -> str:
    """The worst tensor's error over its size, and over eager's own error."""
    worst = run.check.worst
    if worst is None:
        return ""
    share = worst.error / worst.scale if worst.scale else worst.error
    times = f" {worst.error / worst.eager_error:.1f}x" if worst.eager_error else ""
    return f"\n{share:.0e}{times}"


def _time_text(run: Run) -> str:
    if run.time is None:
        return "-"
    mark = "*" if run.conditions.rounds_used == "all" else ""
    return f"{seconds_text(run.time.value)}{mark}\n{interval_text(run.time)}"


def _ratio_text(run: Run) -> Text:
    if run.ratio is None:
        return Text("-")
    if run.level == "eager":
        return Text("1")
    text = Text(f"{run.ratio.value:.3f} ")
    text.append(run.ratio.word, style=STYLES[run.ratio.word])
    return text.append(f"\n{run.ratio.low:.3f}-{run.ratio.high:.3f}")


def _memory_text(run: Run) -> str:
    if not run.memory:
        return "-"
    allocated = run.quantity("allocated_peak")
    return f"{bytes_text(run.quantity('resident'))}\n{bytes_text(allocated)}"


def _build_text(run: Run) -> str:
    build = run.quantity("build")
    if build is None:
        return "-"
    if build < 0.001:
        return "none"
    return seconds_text(build) + ("\n(cached)" if run.build_cached else "")


def _payback_text(run: Run) -> str:
    if run.level == "eager" or run.ratio is None:
        return "-"
    if run.payback_iterations is None:
        return "-" if run.ratio.word == "unclear" else "never"
    return count_text(run.payback_iterations)


def graph_table(graph: Graph) -> Table:
    """How the graph came about, and how often it has each operation."""
    result = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("stage", "nodes", "time"):
        result.add_column(title, justify="left" if title == "stage" else "right")
    for done in graph.history:
        result.add_row(done.name, str(done.nodes), seconds_text(done.seconds))
    result.add_section()
    for op, count in Counter(node.op for node in graph.nodes).most_common():
        result.add_row(op, str(count), "")
    return result

"""A comparison as a table of 100 columns at most, with advice below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.lower.graph import Graph
from golow.record import Comparison, Run, Workload
from golow.report.comparison.advice import advice
from golow.report.comparison.gpu import (
    gpu_text,
    is_on_gpu,
    is_waiting_for_host,
    render_gpu,
    throttled_share,
)
from golow.report.console import level_text, wide_console
from golow.report.layers import has_layers, render_layers
from golow.report.units import bytes_text, count_text, interval_text, seconds_text, share_text

CUDNN = ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13")

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
    """Print heading, table, advice and notes; then the times by layer if `by_layer` is true, or if
    it is None and the record has them."""
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
    for footnote in _footnotes(comparison):
        console.print(Text(footnote, style="dim"))
    remarks = [*comparison.notes, *(f"{r.level}: {n}" for r in comparison.runs for n in r.notes)]
    for remark in remarks:
        console.print(Text(f"note: {remark}", style="dim"))
    render_gpu(comparison, console)
    if has_layers(comparison.runs) if by_layer is None else by_layer:
        render_layers(comparison.runs, console)


def heading(comparison: Comparison) -> str:
    """The workload in one line; on a GPU a second line about the GPU."""
    text = workload_text(comparison.workload)
    return f"{text}\n{gpu_text(comparison)}" if is_on_gpu(comparison) else text


def workload_text(workload: Workload) -> str:
    """The model, mode and input in one line."""
    inputs = workload.inputs[: len(workload.inputs) - workload.draws]
    shapes = ", ".join("x".join(map(str, t.shape)) for t in inputs)
    what = {"infer": "inference", "train": "training step"}[workload.mode]
    dtype = workload.inputs[0].dtype
    return f"{workload.model}, {what}, input {shapes} {dtype}, {workload.parameters:,} parameters"


def conditions(comparison: Comparison) -> str:
    """The conditions of the measurement in two lines."""
    race, on_gpu = comparison.race, is_on_gpu(comparison)
    slowed = f", {share_text(throttled_share(comparison))} throttled" if on_gpu else ""
    return (
        f"{_gpu_software(comparison) if on_gpu else _cpu_setting(comparison)}\n"
        f"{race.rounds} round{'s' if race.rounds != 1 else ''} in {race.seconds:.0f} s, ended by "
        f"{race.stopped_because}; "
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


def _footnotes(comparison: Comparison) -> list[str]:
    """The meaning of the marks that the table contains."""
    found = []
    if any(run.conditions.rounds_used == "all" for run in comparison.runs):
        disturbed = "contended or throttled" if is_on_gpu(comparison) else "contended"
        found.append(f"*: too few clean rounds; {disturbed} ones are included")
    if any(run.quantity("device_added") is not None for run in comparison.runs):
        found.append("+: increase of the GPU memory in use since the level started")
    worst = [run.check.worst for run in comparison.runs if run.check.worst is not None]
    zero = dict.fromkeys(tensor.name for tensor in worst if tensor.zero_scale)
    if zero:
        found.append(
            f"^: the exact value of {', '.join(zero)} is zero; the error is a share of what "
            "cancels there"
        )
    return found


def table(comparison: Comparison) -> Table:
    """One row per level."""
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for title in ("level", "verdict\n(error)"):
        result.add_column(title, no_wrap=True)
    columns = GPU_COLUMNS if is_on_gpu(comparison) else CPU_COLUMNS
    for title in columns:
        result.add_column(title, justify="right", no_wrap=True)
    for run in comparison.runs:
        cells = (Text.assemble(cell(run)) for cell in columns.values())
        result.add_row(Text(level_text(run.level)), _verdict_text(run), *cells)
    return result


def _verdict_text(run: Run) -> Text:
    verdict = run.check.verdict
    return Text(verdict + _error_text(run), style=STYLES[verdict])


def _error_text(run: Run) -> str:
    """The worst tensor's error divided by its size, and by eager's own error. If its exact value is
    zero, its size is that of what cancels there."""
    worst = run.check.worst
    if worst is None:
        return ""
    size = worst.zero_scale or worst.scale
    share = worst.error / size if size else worst.error
    mark = "^" if worst.zero_scale else ""
    times = f" {worst.error / worst.eager_error:.1f}x" if worst.eager_error else ""
    return f"\n{share:.0e}{mark}{times}"


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


def _device_memory_text(run: Run) -> str:
    """The process's memory on the GPU, as the driver reports it or else by its increase (+), and
    its memory on the host."""
    used, added = run.quantity("device_used"), run.quantity("device_added")
    total = bytes_text(used) if added is None else f"{bytes_text(added)}+"
    return f"{total}\n{bytes_text(run.quantity('resident'))}" if run.memory else "-"


def _enqueue_text(run: Run) -> Text:
    style = "yellow" if is_waiting_for_host(run) else ""
    return Text(seconds_text(run.quantity("enqueue")), style=style)


def _ready_text(run: Run) -> str:
    return seconds_text(run.quantity("ready"))


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


CPU_COLUMNS: Mapping[str, Callable[[Run], Text | str]] = {
    "time\n(interval)": _time_text,
    "over eager\n(interval)": _ratio_text,
    "resident\nalloc.": _memory_text,
    "start\nready": _ready_text,
    "build\ntime": _build_text,
    "artifact\nsize": lambda run: bytes_text(run.quantity("artifact")),
    "pays\nafter": _payback_text,
}
GPU_COLUMNS: Mapping[str, Callable[[Run], Text | str]] = {
    "GPU time\n(interval)": _time_text,
    "over eager\n(interval)": _ratio_text,
    "host\nenqueue": _enqueue_text,
    "GPU mem.\nresident": _device_memory_text,
    "start\nready": _ready_text,
    "build\ntime": _build_text,
}


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

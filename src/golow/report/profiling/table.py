"""A profile as tables: what a step's time went to, and its operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.programs.profiling.idle import CAUSES
from golow.programs.profiling.kernels import GpuSummary
from golow.programs.profiling.operators import OperatorTime
from golow.programs.profiling.profile_record import LevelProfile, Profile
from golow.programs.profiling.roofline import step_rate
from golow.programs.profiling.summary import ROLES, Part
from golow.records.errors import GolowError
from golow.records.near_names import meant
from golow.report.console import wide_console
from golow.report.layers import render_layers
from golow.report.profiling.advice import render_advice
from golow.report.profiling.communication import collectives_table, ranks_table
from golow.report.profiling.difference import render_precisions
from golow.report.profiling.kernel_table import kernel_table
from golow.report.profiling.memory import render_memory
from golow.report.profiling.roofline_table import render_rooflines
from golow.report.profiling.way_down import render_ways
from golow.report.units import (
    batch_text,
    bytes_text,
    count_text,
    decimal_text,
    seconds_text,
    share_text,
)

VIEWS = ("operator", "layer", "kernel", "memory", "roofline")
WIDEST_BAR, BARS = 24, 66  # characters of a whole step, and of all levels' bars
LINE_WIDTH = 16
MARKS = "█▓▒░▞▚▤▥▦▧·"  # one per role, in their order
INTERRUPTED = "interrupted: partial results"
GPU_ROWS: dict[str, Callable[[GpuSummary], float | None]] = {
    "GPU busy": lambda gpu: gpu.utilization,
    "SM efficiency (estimate)": lambda gpu: gpu.sm_efficiency,
    "occupancy (estimate)": lambda gpu: gpu.occupancy,
    "tensor cores": lambda gpu: gpu.tensor_cores,
}
SORTS: dict[str, Callable[[OperatorTime], float]] = {
    "time": lambda item: item.self_host + item.self_device,
    "host-time": lambda item: item.self_host,
    "device-time": lambda item: item.self_device,
    "host-memory": lambda item: item.self_host_memory,
    "device-memory": lambda item: item.self_device_memory,
    "calls": lambda item: item.calls,
}


def render(
    profiles: Sequence[Profile],
    *,
    by: str = "operator",
    sort: str = "time",
    top: int = 10,
    console: Console | None = None,
) -> None:
    """Print every profile: the summary of all levels, then what they are divided by: the operators
    or kernels of each, the layers of all side by side, their memory, or their roofline; then what
    to do about it. Several precisions are compared at the end."""
    require_view(by, sort)
    console = console or wide_console()
    for profile in profiles:
        if profile.interrupted:
            console.print(INTERRUPTED)
        if profile.ways:
            render_ways(profile, top, console)
            continue
        found = _render_summary(profile, console)
        if by == "layer":
            steps = {level.level: level.time.value for level in found if level.time}
            render_layers(found, console, steps)
        if by == "memory":
            render_memory(found, top, console)
        if by == "roofline":
            render_rooflines(profile, top, console)
        for level in found if by in ("operator", "kernel") else ():
            console.print()
            console.print(
                Text(f"{level.level}: {by}s of a step, mean of {level.steps}", style="bold")
            )
            if by == "kernel":
                console.print(kernel_table(level, sort, top))
            else:
                console.print(_fitting(_operator_table(level, sort, top), console))
        for level in found:
            if level.communication is not None:
                console.print(
                    Text(f"{level.level}: communication, mean of {level.steps} steps", style="bold")
                )
                console.print(ranks_table(level.communication))
                console.print(collectives_table(level.communication, top))
        render_advice(profile.findings, profile.workload, console)
    if len(profiles) > 1:
        render_precisions(profiles, by=by, top=top, console=console)


def require_view(by: str, sort: str) -> None:
    """Raise `GolowError` unless a profile can be divided and sorted by that."""
    if by not in VIEWS:
        raise GolowError(
            f"profiles have no view {by!r}", f"{meant(by, VIEWS)}use one of {', '.join(VIEWS)}."
        )
    _figure(sort)


def _figure(sort: str) -> Callable[[OperatorTime], float]:
    """Sort key of operators, in golow's words or torch.profiler's."""
    name = sort.replace("cuda-", "device-").replace("cpu-", "host-")
    if name not in SORTS:
        raise GolowError(
            f"operators cannot be sorted by {sort!r}",
            f"{meant(name, SORTS)}use one of {', '.join(SORTS)}.",
        )
    return SORTS[name]


def _copy_lines(levels: Sequence[LevelProfile]) -> list[str]:
    """The copies of each level by kind."""
    return [
        f"{level.level}: {copy.name}: {count_text(copy.calls)}, {bytes_text(copy.bytes)}, "
        f"{seconds_text(copy.seconds)} a step"
        for level in levels
        for copy in level.copies
    ]


def _render_summary(profile: Profile, console: Console) -> list[LevelProfile]:
    """Print the summary; returns the levels that have a profile."""
    workload = profile.workload
    what = "training step" if workload.mode == "train" else "inference"
    console.print(
        Text(
            f"{workload.model}, {what}, {batch_text(workload.batch, workload.ranks)}, "
            f"{workload.device}, precision {workload.precision}",
            style="bold",
        )
    )
    found = [level for level in profile.levels if level.summary]
    if found:
        console.print(_summary_table(profile, found))
    for line in _copy_lines(found):
        console.print(Text(line))
    for level in profile.levels:
        if level.verdict != "match":
            console.print(Text(f"{level.level}: {level.verdict}: {level.reason}"))
        elif level.missing:
            console.print(Text(f"{level.level} has no profile: {level.missing}"))
    return found


# ---------------------------------------------------------------- execution summary


def _summary_table(profile: Profile, levels: Sequence[LevelProfile]) -> Table:
    """One column per level, a row per role, and the step's time with and without a profiler."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("a step's time")
    for level in levels:
        table.add_column(level.level, justify="right")
    table.add_row(
        "without profiler", *(seconds_text(lv.time.value if lv.time else None) for lv in levels)
    )
    table.add_row("with profiler", *(seconds_text(level.profiled) for level in levels))
    for role in ROLES:
        shares = [_share(level, role) for level in levels]
        if any(shares):
            mark = MARKS[ROLES.index(role)]
            table.add_row(f"{mark} {role}", *(share_text(s) if s else "-" for s in shares))
    for cause in CAUSES:
        shares = [_share_of(level.idle, cause) for level in levels]
        if any(shares):
            table.add_row(f"GPU idle: {cause}", *(share_text(s) if s else "-" for s in shares))
    for name, figure in GPU_ROWS.items():
        figures = [figure(level.gpu) if level.gpu else None for level in levels]
        if any(value is not None for value in figures):
            table.add_row(name, *map(share_text, figures))
    _add_arithmetic(table, profile, levels)
    width = min(WIDEST_BAR, BARS // len(levels) - 3)
    table.add_row("", *(_bar(level, width) for level in levels))
    return table


def _add_arithmetic(table: Table, profile: Profile, levels: Sequence[LevelProfile]) -> None:
    """The operations of a step over its time without a profiler, if they are counted."""
    rates = [step_rate(profile, level) for level in levels]
    if not any(rates):
        return
    table.add_row("arithmetic of the step", *(decimal_text(rate, "FLOP/s") for rate in rates))
    if profile.peak is not None and profile.peak.operations > 0:
        peak = profile.peak.operations
        table.add_row(
            "of the measured peak",
            *(share_text(None if rate is None else rate / peak) for rate in rates),
        )


def _share(level: LevelProfile, role: str) -> float:
    return _share_of(level.summary, role)


def _share_of(parts: Sequence[Part], role: str) -> float:
    return sum(part.share for part in parts if part.role == role)


def _bar(level: LevelProfile, width: int) -> str:
    """The shares as this many characters."""
    text, filled = "", 0.0
    for role in ROLES:
        filled += width * _share(level, role)
        text += MARKS[ROLES.index(role)] * (round(filled) - len(text))
    return text


# ---------------------------------------------------------------- operators


def _operator_table(level: LevelProfile, sort: str, top: int) -> Table:
    chosen = sorted(level.operators, key=_figure(sort), reverse=True)
    device = any(item.total_device for item in chosen)
    memory = any(item.self_host_memory or item.self_device_memory for item in chosen)
    columns: dict[str, Callable[[OperatorTime], str]] = {
        "self": lambda item: seconds_text(item.self_host),
        "share": lambda item: share_text(item.self_host / (level.profiled or 1.0)),
        "total": lambda item: seconds_text(item.total_host),
    }
    if device:
        columns |= {
            "device\nself": lambda item: seconds_text(item.self_device),
            "device\ntotal": lambda item: seconds_text(item.total_device),
        }
    if memory:
        columns["memory\nself"] = _memory_text
    columns["calls"] = lambda item: count_text(item.calls)
    lines = any(item.sites for item in chosen[:top])
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    least = None if device else 27  # of a name that is not folded, where there is room
    table.add_column("operator", overflow="fold", min_width=least, max_width=34 if lines else 48)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    if lines:
        columns["your line"] = _line
        table.add_column("your line", overflow="fold", max_width=LINE_WIDTH)
    for item in chosen[:top]:
        name = f"{item.name} {item.shapes}".strip()
        table.add_row(Text(name), *(Text(text(item)) for text in columns.values()))
    rest = len(chosen) - top
    if not chosen:
        none = "none: kernels that no framework operator launched"
        table.add_row(Text(none, style="dim"), *[""] * len(columns))
    elif rest > 0:
        table.add_row(Text(f"and {rest} more", style="dim"), *[""] * len(columns))
    return table


def _fitting(table: Table, console: Console) -> Table:
    """The table, with names that are folded further where rich would else cut the last column."""
    if table.__rich_measure__(console, console.options).minimum > console.width:
        table.columns[0].min_width = None
    return table


def _line(item: OperatorTime) -> str:
    """The line that calls it most often, and the number of others; the record has all."""
    if not item.sites:
        return ""
    more = f" +{len(item.sites) - 1}" if len(item.sites) > 1 else ""
    return f"{Path(item.sites[0]).name}{more}"


def _memory_text(item: OperatorTime) -> str:
    size = item.self_host_memory + item.self_device_memory
    return f"-{bytes_text(-size)}" if size < 0 else bytes_text(size)

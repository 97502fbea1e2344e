"""The GPU part of a report: what each level cost it, and what slowed it down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.measure.block import is_host_bound
from golow.measure.gpu.nvml import SLOWING
from golow.records.comparison import Block, Comparison, GpuState, Run
from golow.report.console import fits, level_text
from golow.report.units import bytes_text, joules_text, seconds_text, share_text, watts_text


def is_on_gpu(comparison: Comparison) -> bool:
    """True if the workload ran on a GPU."""
    return comparison.workload.device == "cuda"


def gpu_text(comparison: Comparison) -> str:
    """The GPU, the precision and, if it was emptied, the cache."""
    run = comparison.runs[0]
    cold = ", L2 cold" if any(run.conditions.cache == "cold" for run in comparison.runs) else ""
    return f"on {names_text(run.environment.gpu)}, precision {comparison.workload.precision}{cold}"


def names_text(gpus: Iterable[str]) -> str:
    """Each GPU's name once."""
    return " or ".join(dict.fromkeys(gpus)) or "a GPU"


def is_waiting_for_host(run: Run) -> bool:
    """True if the host takes about as long to enqueue an iteration as the GPU to run it."""
    enqueue = run.quantity("enqueue")
    return run.time is not None and enqueue is not None and is_host_bound(enqueue, run.time.value)


def throttled_share(comparison: Comparison) -> float:
    """Share of the blocks that heat or power slowed down, in every attempt."""
    marks = [block.throttled for block in _blocks(comparison)]
    return sum(marks) / len(marks) if marks else 0.0


# ---------------------------------------------------------------- what a level cost


def render_gpu(comparison: Comparison, console: Console) -> None:
    """Print what each level cost the GPU, as far as it was measured."""
    if not is_on_gpu(comparison):
        return
    columns = {
        title: [cell(run) for run in comparison.runs]
        for title, cell in COLUMNS.items()
        if any(cell(run) != "-" for run in comparison.runs)
    }
    if not columns:
        return
    console.print()
    console.print(Text("The GPU", style="bold"))
    for part in _parts(comparison.runs, columns, console):
        console.print(part)


def _parts(
    runs: Sequence[Run], columns: Mapping[str, Sequence[str]], console: Console
) -> list[Table]:
    """As many tables as the columns need in this width, each with as many as fit."""
    parts: list[Table] = []
    waiting = list(columns)
    while waiting:
        number = len(waiting)
        part = _gpu_table(runs, {title: columns[title] for title in waiting})
        while number > 1 and not fits(part, console):
            number -= 1
            part = _gpu_table(runs, {title: columns[title] for title in waiting[:number]})
        parts.append(part)
        waiting = waiting[number:]
    return parts


def _gpu_table(runs: Sequence[Run], columns: Mapping[str, Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("level", overflow="fold")
    for title in columns:
        table.add_column(title, justify="right", no_wrap=True)
    for run, *cells in zip(runs, *columns.values(), strict=True):
        table.add_row(Text(level_text(run.level)), *cells)
    return table


def _median_of(figure: Callable[[GpuState], float], unit: str) -> Callable[[Run], str]:
    def text(run: Run) -> str:
        states = _states(run.blocks)
        return f"{median(map(figure, states)):.0f} {unit}" if states else "-"

    return text


def _throttled_text(run: Run) -> str:
    slowed = [block.throttled for block in run.blocks if block.gpu is not None]
    return share_text(sum(slowed) / len(slowed)) if slowed else "-"


COLUMNS: dict[str, Callable[[Run], str]] = {
    "peak\nalloc.": lambda run: bytes_text(run.quantity("allocated_peak")),
    "energy /\niteration": lambda run: joules_text(run.quantity("energy")),
    "mean\npower": lambda run: watts_text(run.quantity("power")),
    "GPU\nbusy": lambda run: share_text(run.quantity("utilization")),
    "SM\nclock": _median_of(lambda state: state.clock_mhz, "MHz"),
    "GPU\ntemp.": _median_of(lambda state: state.temperature_c, "C"),
    "blocks\nslowed": _throttled_text,
    "copied /\niteration": lambda run: bytes_text(run.quantity("copied")),
    "copy\ntime": lambda run: seconds_text(run.quantity("copy_time")),
}
"""Title and text of each column; one that no level has is left out."""


# ---------------------------------------------------------------- advice


def gpu_advice(comparison: Comparison) -> list[str]:
    """Sentences on a slow host, a throttled GPU, and other programs."""
    if not is_on_gpu(comparison):
        return []
    return [*_host_bound(comparison), *_slowed(comparison), *_others(comparison)]


def _host_bound(comparison: Comparison) -> list[str]:
    bound = [run for run in comparison.runs if is_waiting_for_host(run)]
    if not bound:
        return []
    slowest = max(bound, key=lambda run: run.quantity("enqueue") or 0.0)
    names = _listed([run.level for run in bound])
    needs = seconds_text(slowest.quantity("enqueue"))
    return [
        f"{names} {'is' if len(bound) == 1 else 'are'} host-bound: "
        f"{'it' if len(bound) == 1 else slowest.level} needs {needs} to enqueue work that the GPU "
        f"could run in less. A larger batch or a CUDA graph gives the GPU more work at a time."
    ]


def _slowed(comparison: Comparison) -> list[str]:
    share = throttled_share(comparison)
    if not share:
        return []
    states = _states([block for block in _blocks(comparison) if block.throttled])
    found = {reason for state in states for reason in state.reasons}
    reasons = ", ".join(reason for reason in SLOWING if reason in found)
    return [
        f"Heat or power throttled the GPU in {share_text(share)} of the blocks ({reasons}), and "
        "still did when they were timed again: these are times of a GPU at its limit."
    ]


def _others(comparison: Comparison) -> list[str]:
    most = max((s.other_processes for s in _states(_blocks(comparison))), default=0)
    if not most:
        return []
    programs = "Another program" if most == 1 else f"Up to {most} other programs"
    return [f"{programs} used the GPU as well: measure again when it is free."]


def _blocks(comparison: Comparison) -> list[Block]:
    return [block for run in comparison.runs for block in run.blocks]


def _states(blocks: Sequence[Block]) -> list[GpuState]:
    return [block.gpu for block in blocks if block.gpu is not None]


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]

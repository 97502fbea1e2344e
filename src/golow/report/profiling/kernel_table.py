"""The kernels of a level as a table."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from golow.programs.profiling.kernels import KernelTime
from golow.programs.profiling.profile_record import LevelProfile
from golow.report.units import count_text, seconds_text, share_text

GENERIC_KERNEL, PARAMETERS = re.compile(r"\bKernel2?<(\w+)"), re.compile(r"[<(]")
NAME_WIDTH = 80  # characters of a kernel's name


def kernel_table(level: LevelProfile, sort: str, top: int) -> Table:
    """The kernels of a level in order of their time, whatever operators are sorted by."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("kernel", overflow="fold")
    for name in ("time", "share", "calls", "grid\nblock", "occu-\npancy"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("from", overflow="fold", max_width=24)
    for kernel in level.kernels[:top]:
        mark = "\ntensor cores" if kernel.tensor_cores else ""
        table.add_row(
            Text(f"{short_name(kernel.name)}{mark}"),
            seconds_text(kernel.seconds),
            share_text(kernel.seconds / (level.profiled or 1.0)),
            count_text(kernel.calls),
            f"{_sizes(kernel.grid)}\n{_sizes(kernel.block)}",
            share_text(kernel.occupancy),
            Text(_origin(kernel)),
        )
    if not level.kernels:
        table.add_row(Text("none: this is the host's profile", style="dim"), *[""] * 6)
    elif len(level.kernels) > top:
        rest = f"and {len(level.kernels) - top} more"
        table.add_row(Text(rest, style="dim"), *[""] * 6)
    return table


def short_name(kernel: str) -> str:
    """A kernel's name without namespaces, parameters and template arguments, but for a template
    called Kernel, which is named by its argument. The record has the whole name."""
    name = kernel.removeprefix("void ").replace("(anonymous namespace)::", "")
    if generic := GENERIC_KERNEL.search(name):
        name = generic[1]
    name = PARAMETERS.split(name, maxsplit=1)[0].rpartition("::")[2] or name
    return name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 2]}.."


def _origin(kernel: KernelTime) -> str:
    """The layer and the operator that launch it most of the time."""
    phase = f" ({kernel.phase})" if kernel.layer and kernel.phase != "forward" else ""
    return "\n".join(part for part in (f"{kernel.layer}{phase}", kernel.operator) if part)


def _sizes(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes)) or "-"

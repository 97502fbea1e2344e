"""Lists of levels and models, and the reports of `golow doctor` and `golow selftest`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.measure.gpu.nvml import Card
from golow.records.comparison import Environment
from golow.report.units import bytes_text

if TYPE_CHECKING:
    from golow.levels.ladder import Level, Probe
    from golow.models import Entry
    from golow.programs.comparison.selftest import SelftestResult
    from golow.workload.hub.companions import Companion


BUSY = 0.5  # of the cores: a mean load above it leaves golow too few


def levels_table(ladder: Sequence[Level]) -> Table:
    """One row per level and variant."""
    table = _table("level", "what runs", "needs", "modes")
    for level in ladder:
        table.add_row(level.name, _summary(level), level.needs, ", ".join(level.modes))
        for name, variant in level.variants.items():
            table.add_row(f"{level.name}:{name}", variant.summary, "", ", ".join(variant.modes))
    return table


def _summary(level: Level) -> str:
    """Summary of the level, with a note if it was never tested on a device."""
    if not level.unseen:
        return level.summary
    return f"{level.summary} (never tested on {', '.join(level.unseen)})"


def models_lines(zoo: Mapping[str, Entry]) -> Iterator[Text]:
    """A header, then two lines per model: its defaults, and below them what it is. A table would
    fold every description into a narrow column."""
    yield Text(f"{'model':<15}  {'parameters':>11}  {'classes':>7}  input", style="bold")
    for entry in zoo.values():
        figures = f"{entry.parameters:>11,}  {entry.classes or '-':>7}  {_input_text(entry)}"
        yield Text(f"{entry.name:<15}  {figures}")
        yield Text(f"  {entry.summary}", style="dim")


def _input_text(entry: Entry) -> str:
    """``3x224x224, sides from 29``, or ``tokens; 128 of at most 1024``."""
    if entry.takes_images:
        least, step = entry.minimum_resolution, entry.resolution_step
        sides = f"from {least}" if step == 1 else f"{least}, {least + step}, ..."
        return f"{entry.in_channels}x{entry.resolution}x{entry.resolution}, sides {sides}"
    names = ", ".join(field.name for field in entry.fields)
    longest = f" of at most {entry.longest}" if entry.longest else ""
    return f"{names}; {entry.sequence}{longest}" if entry.sequence else names


def doctor_report(
    console: Console, ladder: Sequence[Level], machine: Environment, beside: Sequence[Companion]
) -> None:
    """The probes, the commands that install what is missing, then the packages besides torch
    and the machine."""
    probes = {level.name: level.probe() for level in ladder}
    for level in ladder:
        probes |= {f"{level.name} on {place}": probe() for place, probe in level.on_device.items()}
    table = _table("level", "can run here")
    for name, probe in probes.items():
        table.add_row(name, _answer(probe))
    console.print(table)
    _print_fixes(console, probes)
    versions = ", ".join(f"{name} {value}" for name, value in machine.versions.items())
    rows = {
        "CPU": f"{machine.cpu_model}, {machine.cores} cores, {len(machine.affinity)} usable",
        "vector extensions": ", ".join(machine.cpu_flags) or "unknown",
        "memory": bytes_text(machine.memory_bytes),
        "container limits": ", ".join(f"{k} {v}" for k, v in machine.container_limits.items())
        or "none",
        "governor": machine.governor or "not readable",
        "GPU": ", ".join(machine.gpu) or "none",
        **({"GPU state": _gpu_state_text()} if machine.gpu else {}),
        "versions": versions,
        **{one.name: _companion_text(one) for one in beside},
        "load": _load_text(len(machine.affinity)),
        "waiting for a core": _waiting_text(),
        "free disk here": bytes_text(shutil.disk_usage(".").free),
    }
    for name, value in rows.items():
        console.print(Text(f"{name}: ", style="bold") + Text(value, style="not bold"))
    console.print("`golow selftest` tests whether measurements on this machine can be trusted.")


def _print_fixes(console: Console, probes: Mapping[str, Probe]) -> None:
    """A line for each way to get what is missing, never folded, so that it can be pasted."""
    by_fix: dict[tuple[str, str], list[str]] = {}
    for name, probe in probes.items():
        if not probe.available and probe.fix:
            by_fix.setdefault((probe.missing, probe.fix), []).append(name)
    if by_fix:
        console.print("What is missing, and what to do:", style="bold")
    for (missing, fix), names in by_fix.items():
        console.print(Text(f"  {', '.join(names)}: {missing}; {fix}"), soft_wrap=True)


def _companion_text(one: Companion) -> str:
    """Text on a package that models use: whether it imports with this torch, and how to fix it."""
    if not one.version:
        return "not installed"
    if not one.fault:
        return f"{one.version}, imports with this torch"
    fix = f"\n  {one.fix}" if one.fix else ""
    return f"{one.version}, does not import with this torch: {one.fault}{fix}"


def _load_text(cores: int) -> str:
    """Processes that computed or waited for a core, in the mean of the last minute."""
    load = os.getloadavg()[0]
    busy = "; other programs use the CPU, which disturbs timings" if load > BUSY * cores else ""
    return f"{load:.1f} in the last minute, for {cores} cores{busy}"


def _answer(probe: Probe) -> Text:
    return Text("yes", style="green") if probe.available else Text("no", style="red")


def selftest_report(console: Console, result: SelftestResult) -> None:
    """The selftest's findings and its verdict."""
    table = _table("planted", "expected", "found", "")
    for finding in result.findings:
        word = Text("ok", style="green") if finding.passed else Text("NOT OK", style="bold red")
        table.add_row(finding.name, finding.expected, finding.found, word)
    console.print(table)
    for finding in result.findings:
        if not finding.passed:
            console.print(f"{finding.name}: {finding.explanation}")
    console.print(
        Text("Measurements on this machine can be trusted.", style="bold green")
        if result.trusted
        else Text("Measurements on this machine cannot be trusted at the moment.", style="bold red")
    )


def _gpu_state_text() -> str:
    with Card() as card:
        state = card.state()
    if state is None:
        return (
            "not readable: throttled blocks are not detected and energy is not measured; "
            "pip install nvidia-ml-py"
        )
    others = f", {state.other_processes} other programs" if state.other_processes else ""
    return (
        f"readable: {state.clock_mhz} MHz, {state.temperature_c} C, {state.power_w:.0f} W{others}"
    )


def _waiting_text() -> str:
    from golow.worker.scheduling import run_queue_wait_ns

    if run_queue_wait_ns(os.getpid()) is None:
        return "not readable: contended blocks are not detected"
    return "readable: contended blocks are detected"


def _table(*titles: str) -> Table:
    """The first column has names, which are typed: it is never cut."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for position, title in enumerate(titles):
        table.add_column(title, no_wrap=position == 0, overflow="fold")
    return table

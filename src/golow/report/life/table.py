"""A life cycle as tables of 100 columns at most: the stages, the level to use, what is held, what
another batch size costs, and what makes stages shorter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from golow.programs.life.life_record import (
    START,
    CacheState,
    Change,
    LevelLife,
    Life,
    LifeCycle,
    Stage,
)
from golow.programs.life.mitigations import mitigations
from golow.programs.life.stages import (
    Use,
    break_evens,
    spread,
    stage_spread,
    start_spread,
    steady,
    uses,
)
from golow.report.console import level_text, wide_console
from golow.report.life.remarks import caches, remarks
from golow.report.units import MISSING, bytes_text, count_text, joules_text, seconds_text

COLUMNS: dict[Stage, str] = {
    "capture": "capture",
    "build": "build",
    "import": "import",
    "load": "load",
    "first_iteration": "first",
    "settling": "settling",
}
NOTHING = 1e-4  # seconds; what captures or builds nothing takes less


def render(found: LifeCycle, console: Console | None = None) -> None:
    """Print everything that was measured, and which levels have no life."""
    console = console or wide_console()
    console.print()
    console.print(Text(_heading(found), style="bold"))
    lived = [level for level in found.levels if level.lives]
    for cache in caches(found):
        console.print(stage_table(lived, cache))
    for level in found.levels:
        if level.failed:
            console.print(Text(f"{level.level}: failed: {level.failed}"))
        elif level.verdict != "match":
            console.print(Text(f"{level.level}: not measured: {level.verdict}: {level.reason}"))
    for cache in caches(found):
        _print_uses(found, cache, console)
    if lived:
        console.print(held_table(lived))
    if any(level.changes for level in lived):
        console.print(change_table(lived))
    for level in lived:
        if level.change_missing:
            console.print(Text(f"{level.level}: no other batch size: {level.change_missing}"))
        if level.setting_missing:
            console.print(Text(f"{level.level}: not tried: {level.setting_missing}"))
    tried = _mitigation_table(found)
    if tried.rows:
        console.print(tried)
    for remark in remarks(found):
        console.print(Text(f"note: {remark}", style="dim"))


def _heading(found: LifeCycle) -> str:
    workload = found.workload
    step = "training step" if workload.mode == "train" else "inference"
    lives = max((len(level.of(c)) for level in found.levels for c in caches(found)), default=0)
    return (
        f"life cycle of {workload.model}, {step}, batch {workload.batch}, {workload.device}: "
        f"medians of up to {lives} {'lives' if lives != 1 else 'life'} per level and cache"
    )


# ---------------------------------------------------------------- stages


def stage_table(levels: Sequence[LevelLife], cache: CacheState) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column(f"{cache} cache", overflow="fold")
    for name in (*COLUMNS.values(), "its.", "steady", "end"):
        table.add_column(name, justify="right", no_wrap=True)
    for level in levels:
        lives = level.of(cache)
        if lives:
            table.add_row(level_text(level.level), *_stage_cells(level, lives))
    return table


def _stage_cells(level: LevelLife, lives: Sequence[Life]) -> Iterator[str]:
    for stage in COLUMNS:
        yield _stage_text(lives, stage)
    yield _settled_text(lives)
    each, end = steady(level, lives), stage_spread(lives, "end")
    yield seconds_text(each.median if each else None)
    yield seconds_text(end.median if end else None)


def _stage_text(lives: Sequence[Life | Change], stage: Stage) -> str:
    found = spread(one.seconds.get(stage) for one in lives)
    if found is None or (stage in ("capture", "build") and found.median < NOTHING):
        return MISSING
    return seconds_text(found.median)


def _settled_text(lives: Sequence[Life | Change]) -> str:
    """The iterations before the settled ones; open if a process did not settle."""
    found = spread(one.settled_after or len(one.iterations) // 2 for one in lives)
    if found is None:
        return MISSING
    open_end = any(one.settled_after is None for one in lives)
    return f"{'>' if open_end else ''}{count_text(found.median)}"


# ---------------------------------------------------------------- which level for how long


def _print_uses(found: LifeCycle, cache: CacheState, console: Console) -> None:
    known = uses(found, cache)
    if not known:
        return
    table = _table("iterations", f"use ({cache} cache)", "total", "may be as fast")
    for use in known:
        table.add_row(f"{use.iterations:,}", use.level, seconds_text(use.seconds), _also(use))
    console.print(table)
    for pair in break_evens(found, cache):
        if pair.iterations is not None:
            console.print(
                Text(
                    f"{cache} cache: {pair.level} overtakes {pair.other} at "
                    f"{count_text(pair.iterations)} iterations"
                )
            )


def _also(use: Use) -> str:
    return ", ".join(use.also) if use.ranged else "unknown: one life has no range"


# ---------------------------------------------------------------- what is held, other batches


def held_table(levels: Sequence[LevelLife]) -> Table:
    """Table of memory and energy, a row per level and cache; medians over its lives."""
    table = _table(
        "level", "cache", "first result", "disk", "artifact", "host peak", "GPU", "energy"
    )
    for level in levels:
        for cache in ("cold", "warm"):
            lives = level.of(cache)
            if not lives:
                continue
            start = start_spread(lives)
            device = _figure(lives, "device_used") or _figure(lives, "device_added")
            joules = [_figure(lives, name) for name in ("gpu_energy", "package_energy")]
            energy = sum(j for j in joules if j is not None) if any(joules) else None
            table.add_row(
                level_text(level.level),
                cache,
                seconds_text(start.median if start else None),
                bytes_text(_figure(lives, "disk")),
                bytes_text(_figure(lives, "artifact")),
                bytes_text(_figure(lives, "resident_peak")),
                bytes_text(device),
                joules_text(energy),
            )
    return table


def _figure(lives: Sequence[Life], name: str) -> float | None:
    found = spread(one.figure(name) for one in lives)
    return found.median if found else None


def change_table(levels: Sequence[LevelLife]) -> Table:
    """Table of the cost of another batch size while a level runs; medians."""
    batches = {change.batch for level in levels for change in level.changes}
    batch = ", ".join(map(str, sorted(batches)))
    table = _table(
        f"batch to {batch}",
        "process",
        "capture",
        "build",
        "start",
        "first",
        "until\nfirst",
        "until\nsteady",
    )
    for level in levels:
        if not level.changes:
            continue
        kept = level.changes[0].same_process
        start = spread(_start_of(change) for change in level.changes)
        table.add_row(
            level_text(level.level),
            "the same" if kept else "a new one",
            _stage_text(level.changes, "capture"),
            _stage_text(level.changes, "build"),
            seconds_text(start.median) if start and start.median else MISSING,
            _stage_text(level.changes, "first_iteration"),
            _middle(change.until_first for change in level.changes),
            _middle(change.until_settled for change in level.changes),
        )
    return table


def _start_of(change: Change) -> float:
    return sum(change.seconds.get(stage, 0.0) for stage in START if stage in ("import", "load"))


def _middle(values: Iterator[float]) -> str:
    found = spread(values)
    return seconds_text(found.median if found else None)


# ---------------------------------------------------------------- mitigations


def _mitigation_table(found: LifeCycle) -> Table:
    table = _table("stage", "tried", "level", "without", "with")
    ordered = sorted(mitigations(found), key=lambda tried: (tried.stages, tried.name))
    for (stages, name), group in groupby(ordered, key=lambda tried: (tried.stages, tried.name)):
        for position, one in enumerate(group):
            told = ("", "") if position else (stages, name)
            table.add_row(
                *told,
                one.level,
                seconds_text(one.without.median),
                seconds_text(one.used.median),
            )
    return table


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, name in enumerate(names):
        numbers = position > 1 and name not in ("may be as fast", "level", "tried")
        side: JustifyMethod = "right" if numbers else "left"
        whole = max(map(len, name.split()), default=0)
        table.add_column(name, justify=side, no_wrap=numbers, min_width=whole, overflow="fold")
    return table

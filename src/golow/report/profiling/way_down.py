"""The way down as tables: what stands between the call of a layer and the vendor's entry."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.programs.profiling.profile_record import Profile
from golow.programs.profiling.way_down.way_down_record import Frame, LevelWay, WayDown
from golow.report.units import MISSING, seconds_text, share_text

LONGEST_NAME, LONGEST_PLACE = 58, 30
NOTE = (
    "The layer is lowered alone, on the input that it gets in the network. Instructions are those "
    "of one call of it on one thread, counted by callgrind with AVX2 at most. The time is without "
    "Valgrind, with all instruction sets of the processor."
)
PYTHON = "Python"
KEPT = {"(anonymous namespace)": "{anonymous}", "operator()": "operator{}"}
INNERMOST = re.compile(r"<[^<>]*>|\([^()]*\)")
SUFFIX = re.compile(r"( const| \[clone [^\]]*\])+$")


def render_ways(profile: Profile, top: int, console: Console) -> None:
    """Print for each way down a column per level, then the frames of each level; of long stacks the
    outermost and innermost."""
    workload = profile.workload
    for way in profile.ways:
        inputs = ", ".join(f"{item.dtype} {list(item.shape)}" for item in way.inputs)
        title = f"{workload.model}, the way down of {way.layer} ({way.operation}), input {inputs}"
        console.print(Text(title, style="bold"))
        counted = [level for level in way.levels if not level.missing]
        if counted:
            console.print(way_table(counted))
            console.print(Text(NOTE, style="dim"))
        _print_missing(way, console)
        for level in counted:
            _print_frames(level, top, console)


def short_name(name: str) -> str:
    """A C++ function without its parameters, template arguments and return type."""
    for words, kept in KEPT.items():
        name = name.replace(words, kept)
    name = (
        name.replace("->", "  ").replace("operator<<", "operator").replace("operator<", "operator")
    )
    while (shorter := INNERMOST.sub("", name)) != name:
        name = shorter
    name = SUFFIX.sub("", name.strip())
    name = name if "operator " in name else name.rpartition(" ")[2]
    for words, kept in KEPT.items():
        name = name.replace(kept, words)
    return name


# ---------------------------------------------------------------- the table


ROWS: dict[str, Callable[[LevelWay], str]] = {
    "vendor": lambda way: way.owner or "none",
    "Python frames": lambda way: str(len(way.python)),
    "native frames": lambda way: str(way.interpreter + len(way.native)),
    "  of Python's interpreter": lambda way: str(way.interpreter),
    "  of C++": lambda way: str(len(way.native)),
    "instructions before the entry": lambda way: f"{way.before:,}",
    "  in the vendor's entries": lambda way: f"{way.inside:,}" if way.entry else MISSING,
    "  between and after": lambda way: f"{way.after:,}" if way.entry else MISSING,
    "  share outside the entries": lambda way: _share(way),
    "calls to an entry": lambda way: f"{way.entries:,}",
    "calls to the dispatcher": lambda way: f"{way.dispatches:,}",
    "allocations": lambda way: f"{way.allocations:,}",
    "time of the call": lambda way: seconds_text(way.time.value if way.time else None),
}


def way_table(levels: Sequence[LevelWay]) -> Table:
    """One row per figure, a column per level."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("one call to the layer")
    for level in levels:
        table.add_column(level.level, justify="right", overflow="fold")
    for name, text in ROWS.items():
        table.add_row(name, *(text(level) for level in levels))
    return table


def _share(way: LevelWay) -> str:
    outside = way.before + way.after
    return share_text(outside / (outside + way.inside)) if way.entry else MISSING


def _print_missing(way: WayDown, console: Console) -> None:
    for level in way.levels:
        if level.missing:
            console.print(Text(f"{level.level}: {way.layer} was not counted: {level.missing}"))
        elif level.entry is None:
            console.print(
                Text(
                    f"{level.level}: {way.layer} reaches no vendor's entry; all its instructions "
                    "are before it, and the frames lead to the function with the most of them"
                )
            )


# ---------------------------------------------------------------- the frames


def _print_frames(level: LevelWay, top: int, console: Console) -> None:
    """One line per frame, outermost first."""
    console.print()
    console.print(Text(f"{level.level}: from the call down", style="bold"))
    _print_stack(PYTHON, level.python, top, console)
    if level.interpreter:
        console.print(Text(f"  C       {level.interpreter} frames of Python's interpreter"))
    _print_stack("C++", level.native, top, console)
    if level.entry is not None:
        _print_stack(level.owner, [level.entry], top, console)


def _print_stack(kind: str, frames: Sequence[Frame], top: int, console: Console) -> None:
    outer = frames if len(frames) <= top else frames[: top // 2]
    inner = frames[len(frames) - (top - top // 2) :] if len(frames) > top else ()
    for frame in outer:
        console.print(_line(kind, frame))
    if inner:
        console.print(Text(f"  {'':8}({len(frames) - len(outer) - len(inner)} more)", style="dim"))
    for frame in inner:
        console.print(_line(kind, frame))


def _line(kind: str, frame: Frame) -> Text:
    name, place = frame.name, frame.place
    if kind != PYTHON:
        name = short_name(name)
    if len(name) > LONGEST_NAME:  # the end is more informative than the namespaces before it
        name = f"..{name[2 - LONGEST_NAME :]}"
    if len(place) > LONGEST_PLACE:
        place = f"..{place[2 - LONGEST_PLACE :]}"
    return Text(f"  {kind:<8}{name:<{LONGEST_NAME}}  {place}".rstrip())

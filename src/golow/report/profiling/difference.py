"""Two profiles, or the precisions of one, as tables: what grew, shrank, appeared and vanished."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.programs.profiling.difference import (
    Change,
    LevelDifference,
    Place,
    ProfileDifference,
    between_precisions,
)
from golow.programs.profiling.profile_record import LevelProfile, Profile
from golow.records.errors import GolowError
from golow.report.console import wide_console
from golow.report.units import MISSING, change_text, count_text, seconds_text, share_text

NAME_WIDTH = 44
DIVIDED: dict[str, Callable[[LevelDifference], Sequence[Change]]] = {
    "operator": lambda level: level.operators,
    "kernel": lambda level: level.kernels,
    "layer": lambda level: level.layers,
}


def render_difference(
    found: ProfileDifference,
    names: tuple[str, str] = ("before", "after"),
    *,
    by: str = "operator",
    top: int = 10,
    console: Console | None = None,
) -> None:
    """Print what makes the profiles hard to compare, then for each level in both how a step's time
    changed, and the operators, kernels or layers that changed most. names: of the profiles.

    Raises `GolowError` if a difference cannot be divided by that.
    """
    if by not in DIVIDED:
        raise GolowError(
            f"profiles cannot be compared by {by!r}", f"use one of {', '.join(DIVIDED)}."
        )
    console = console or wide_console()
    for word, name in zip(("before", "after"), names, strict=True):
        if name != word:
            console.print(Text(f"{word + ':':8}{name}", style="bold"))
    for fragment in found.unlike:
        console.print(Text(f"not alike: {fragment}", style="yellow"))
    for place in found.only_before:
        console.print(Text(f"{_name(place)} is only before"))
    for place in found.only_after:
        console.print(Text(f"{_name(place)} is only after"))
    if not found.levels:
        console.print("The profiles have no level in common.")
    for level in found.levels:
        console.print()
        console.print(Text(_name(Place(level.before, level.level)), style="bold"))
        if any(time is not None for time in (level.time.before, level.time.after)):
            console.print(_time_table(level))
        for reason in level.missing:
            console.print(Text(reason))
        _render_items(level, by, top, console)


def render_precisions(profiles: Sequence[Profile], *, by: str, top: int, console: Console) -> None:
    """Print the precisions of one profile side by side, then how each differs from the first."""
    console.print()
    console.print(Text("precision, side by side", style="bold"))
    console.print(_precision_table(profiles))
    for profile in profiles[1:]:
        for level in between_precisions(profiles[0], profile):
            names = level.before, level.after
            title = f"{level.level}: {by}s, {' to '.join(names)}"
            _render_items(level, by, top, console, names=names, title=title)


# ---------------------------------------------------------------- a step's time


def _time_table(level: LevelDifference) -> Table:
    table = _table("a step's time")
    for change in (level.time, level.profiled):
        cells = _cells(change)
        if None in (change.before, change.after):  # not timed, which is not a change
            cells[3:] = [Text(MISSING), Text(MISSING)]
        table.add_row(*cells)
    for role in level.roles:
        table.add_row(*_cells(role))
    return table


def _precision_table(profiles: Sequence[Profile]) -> Table:
    """One row per level and precision; the ratio is to the first precision's time."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("level", overflow="fold", max_width=24)
    table.add_column("precision")
    for name in ("a step", "ratio", "tensor\ncores", "error", "limit"):
        table.add_column(name, justify="right")
    table.add_column("worst tensor", overflow="fold", max_width=30)
    for name in dict.fromkeys(level.level for profile in profiles for level in profile.levels):
        first: LevelProfile | None = None
        for profile in profiles:
            level = next((found for found in profile.levels if found.level == name), None)
            if level is not None:
                shown = "" if first else name
                first = first or level
                table.add_row(Text(shown), profile.workload.precision, *_figures(first, level))
        table.add_section()
    return table


def _figures(first: LevelProfile, level: LevelProfile) -> list[Text]:
    if level.time is None:
        return [Text(level.verdict, style="dim"), *[Text()] * 5]
    base = first.time.value if first.time else None
    worst = level.worst
    figures = (
        seconds_text(level.time.value),
        "" if level is first else _ratio(Change(name="", before=base, after=level.time.value)),
        share_text(level.gpu.tensor_cores if level.gpu else None),
        f"{worst.error:.2g}" if worst else MISSING,
        f"{worst.limit:.2g}" if worst else MISSING,
        worst.name if worst else MISSING,
    )
    return [Text(figure) for figure in figures]


# ---------------------------------------------------------------- what a step is divided by


def _render_items(
    level: LevelDifference,
    by: str,
    top: int,
    console: Console,
    *,
    names: tuple[str, str] = ("before", "after"),
    title: str = "",
) -> None:
    """Print the items that changed most; nothing if the level has none. names: of the profiles."""
    changes = DIVIDED[by](level) if by in DIVIDED else ()
    if not changes:
        return
    if title:
        console.print(Text(title, style="bold"))
    table = _table(by, names)
    if by != "layer":
        table.add_column("calls", justify="right")
    for change in changes[:top]:
        table.add_row(*_cells(change), *([_calls(change)] if by != "layer" else ()))
    rest = changes[top:]
    if rest:
        more = sum(change.seconds for change in rest)
        table.add_row(Text(f"and {len(rest)} more", style="dim"), "", "", change_text(more))
    console.print(table)


def _table(what: str, names: tuple[str, str] = ("before", "after")) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(what, overflow="fold", max_width=NAME_WIDTH)
    for name in (*names, "change", "ratio"):
        table.add_column(name, justify="right")
    return table


def _cells(change: Change) -> list[Text]:
    return [
        Text(f"{change.name or '(top)'} {change.detail}".strip()),
        Text(seconds_text(change.before)),
        Text(seconds_text(change.after)),
        Text(change_text(change.seconds)),
        Text(_ratio(change)),
    ]


def _ratio(change: Change) -> str:
    """After over before; ``new`` and ``gone`` for what is in one profile only."""
    if change.before is None or change.after is None:
        return "new" if change.before is None else "gone"
    if change.ratio is None:
        return MISSING
    return f"{change.ratio:.2f}" if change.ratio >= 0.1 else f"{change.ratio:.2g}"


def _calls(change: Change) -> Text:
    before, after = (
        MISSING if calls is None else count_text(calls)
        for calls in (change.calls_before, change.calls_after)
    )
    return Text(before if before == after else f"{before} to {after}")


def _name(place: Place) -> str:
    return f"{place.level}, precision {place.precision}"

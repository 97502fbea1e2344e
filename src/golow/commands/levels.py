"""``golow levels``: the table of levels, and which of them support the operations of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from golow.commands.json_output import require_json, write_json
from golow.commands.options import (
    Channels,
    Classes,
    DeviceName,
    JsonFile,
    LevelNames,
    LossOption,
    PrecisionName,
    PrecisionOption,
    names,
)
from golow.commands.quiet import prints_to_stderr
from golow.commands.typed_options import typed_options
from golow.commands.workload_flags import InputFlags, PublishedFlags, graph_options
from golow.records.errors import GolowError
from golow.report.console import PlainConsole, wide_console

if TYPE_CHECKING:
    from golow.programs.explain.explain_record import Support


def levels(
    context: typer.Context,
    support: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Show which levels support which operators of this model, without building or "
            "running the levels: a model from `golow models`, or file.py:Name, "
            "package.module:name, file.pt2. The other options apply to --support.",
            show_default=False,
        ),
    ] = None,
    *,
    inputs: InputFlags,
    levels: LevelNames = None,
    channels: Channels = None,
    classes: Classes = None,
    loss: LossOption = None,
    published: PublishedFlags,
    device: Annotated[
        DeviceName | None,
        typer.Option(
            "--device",
            help="Only levels that run on this device, present or not.  [default: both]",
            show_default=False,
        ),
    ] = None,
    precision: PrecisionOption = PrecisionName.default,
    every: Annotated[
        bool, typer.Option("--all", help="Also show the operators that every level supports.")
    ] = False,
    json: JsonFile = None,
) -> None:
    """List the levels and their variants, from the most abstract to the lowest.

    With --support, the exit status is 0 when no level lacks an operator, and 1 when one does or
    when the model cannot be captured as the graph that a level needs.
    """
    if support is None:
        _require_no_options(context)
        _list_levels()
        return
    from golow import api
    from golow.report.progress import ProgressDisplay

    require_json(json)
    with ProgressDisplay(PlainConsole(stderr=True)) as display, prints_to_stderr():
        result = api.support(
            support,
            **graph_options(inputs, channels, classes, loss, published),
            levels=names(levels),
            device=None if device is None else device.value,
            precision=precision.value,
            observer=display,
        )
    _show(result.support, json, every)
    raise typer.Exit(1 if any(level.answer == "lacks" for level in result.support.levels) else 0)


def _list_levels() -> None:
    from golow.levels.ladder import LADDER
    from golow.report.comparison.lists import levels_table

    wide_console().print(levels_table(LADDER))


def _require_no_options(context: typer.Context) -> None:
    """Raise `GolowError` for an option that describes a model, if no model is given."""
    for _, option in typed_options(context):
        raise GolowError(f"{option} needs a model", f"add --support MODEL, or leave out {option}.")


def _show(found: Support, json: str | None, every: bool) -> None:
    from golow.report.comparison.support import render

    to_pipe = json == "-"
    console = wide_console(stderr=True) if to_pipe else None
    render(found, console, every=every)
    write_json(found, json)

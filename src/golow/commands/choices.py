"""``golow choices``: what frameworks, libraries and the system decide unless the user does."""

from __future__ import annotations

from typing import Annotated

import typer

from golow.report.console import wide_console


def choices(
    name: Annotated[
        str | None, typer.Argument(help="Show everything about this choice or alternative.")
    ] = None,
    level: Annotated[str | None, typer.Option(help="Only those in effect at this level.")] = None,
    mode: Annotated[str | None, typer.Option(help="Only those in this mode: infer, train.")] = None,
    device: Annotated[
        str | None, typer.Option(help="Only those on this device: cpu, cuda.")
    ] = None,
) -> None:
    """List the settings that have a default, with their alternatives.

    To set an alternative, append its name to a level: --levels eager,eager+fused_sgd.
    """
    from golow.levels.choices.listing import listed, named
    from golow.report.choices import choice_page, choices_table

    if name is not None:
        choice_page(wide_console(), named(name))
    else:
        wide_console().print(choices_table(listed(level=level, mode=mode, device=device)))

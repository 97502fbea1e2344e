"""Options that were typed, and the refusal of those that would have no effect."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import typer

from golow.records.errors import GolowError


def is_typed(context: typer.Context, name: str) -> bool:
    """True if the command line has the option. name: of its parameter."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def typed_options(context: typer.Context) -> Iterator[tuple[str, str]]:
    """Parameter and option of everything that was typed, in the order of the help."""
    for parameter in context.command.params:
        name = parameter.name or ""
        if is_typed(context, name):
            is_off = parameter.secondary_opts and context.params.get(name) is False
            yield name, (parameter.secondary_opts if is_off else parameter.opts)[0]


def refuse_without(context: typer.Context, needed: str, names: Collection[str]) -> None:
    """Raise `GolowError` for a typed option of these parameters: it has no effect without the
    needed one."""
    for name, option in typed_options(context):
        if name in names:
            raise GolowError(f"{option} needs {needed}", f"add {needed}, or leave out {option}.")


def refuse_beside(context: typer.Context, option: str, does: str, names: Collection[str]) -> None:
    """Raise `GolowError` for a typed option of these parameters: it has no effect beside this one.

    does: what the option does, in words that follow it.
    """
    for name, other in typed_options(context):
        if name in names:
            raise GolowError(
                f"{option} {does}, so {other} has no effect",
                f"leave out {other}, or leave out {option}.",
            )


def refuse_others(
    context: typer.Context, option: str, does: str, effective: Collection[str]
) -> None:
    """Refuse, as `refuse_beside`, every parameter but these, the option's own among them."""
    others = {parameter.name or "" for parameter in context.command.params}.difference(effective)
    refuse_beside(context, option, does, others)

"""Groups of options: the command line lists their fields in place, the command gets the group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from golow.commands.splice import splice


@dataclass(frozen=True, kw_only=True)
class SizeFlags:
    width: Annotated[int, typer.Option(help="How wide.")] = 3
    height: Annotated[int | None, typer.Option(help="How high.")] = None


@dataclass(frozen=True, kw_only=True)
class WideFlags:
    width: Annotated[int, typer.Option()] = 4


def draw(
    name: Annotated[str, typer.Argument()],
    first: Annotated[bool, typer.Option("--first")] = False,
    *,
    size: SizeFlags,
    last: Annotated[str, typer.Option()] = "x",
) -> None:
    """Draw it."""
    print(name, first, size, last)


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(splice(draw))
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "100"}).output


def test_the_fields_of_a_group_are_options_where_the_group_stands() -> None:
    shown = run("--help")
    assert "Draw it." in shown
    places = [shown.index(f"--{name} ") for name in ("first", "width", "height", "last")]
    assert places == sorted(places)
    assert "How wide." in shown
    assert "--size" not in shown


def test_a_command_gets_the_group_with_the_values_that_were_given() -> None:
    assert run("a").strip() == f"a False {SizeFlags()} x"
    given = run("a", "--height", "5", "--last", "y", "--first")
    assert given.strip() == f"a True {SizeFlags(width=3, height=5)} y"


def test_an_option_that_two_groups_have_is_refused() -> None:
    def twice(*, size: SizeFlags, wide: WideFlags) -> None: ...

    with pytest.raises(ValueError, match="duplicate parameter name: 'width'"):
        splice(twice)

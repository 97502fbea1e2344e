"""The command line: puts the commands of ``commands/`` together.

Slow imports (torch, scipy) stay inside the commands that need them, so that ``golow levels``
answers at once.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import requires, version
from typing import Annotated

import typer

from golow.commands.audit import audit
from golow.commands.build import build
from golow.commands.choices import choices
from golow.commands.compare import compare
from golow.commands.data import data_app
from golow.commands.doctor import doctor
from golow.commands.emit import emit
from golow.commands.generate import generate
from golow.commands.levels import levels
from golow.commands.load import load
from golow.commands.lower import lower
from golow.commands.models import models
from golow.commands.profile import profile
from golow.commands.quantize import quantize
from golow.commands.quiet import open_streams
from golow.commands.report import report
from golow.commands.run import run
from golow.commands.selftest import selftest
from golow.commands.show import show
from golow.commands.splice import splice
from golow.commands.study import study_app
from golow.commands.train import train
from golow.records.errors import GolowError, Unsupported
from golow.report.console import plain
from golow.storage.cache import cache_errors
from golow.storage.full_disk import FULL, TEMPORARY_HINT, is_without_temporary

app = typer.Typer(
    name="golow",
    help="Run a PyTorch model at every level of abstraction, prove that the levels agree, and "
    "measure the cost of each one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # "[default: 8]" in a help text is text
    context_settings={"help_option_names": ["-h", "--help"]},
)
# The groups of ``golow --help``.
PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Measure": (compare, generate, train, profile, audit, load),
    "Use": (build, run, emit, quantize),
    "Look": (show, report, lower, levels, choices, models),
    "Machine": (doctor, selftest),
}
for panel, commands in PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(splice(command))
app.add_typer(study_app, name="study", rich_help_panel="Measure")
app.add_typer(data_app, name="data", rich_help_panel="Machine")


@app.callback(invoke_without_command=True)
def _version(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if show_version:
        print(f"golow {version('golow')}")
        raise typer.Exit


def main() -> None:
    """Run the command line; an error that the user can fix is one message and exit status 2."""
    open_streams()
    try:
        _require_current_folder()
        try:
            with cache_errors():
                app()
        finally:
            sys.stdout.flush()
    except GolowError as error:
        _complain(error.message, error.hint)
    except Unsupported as error:
        _complain(str(error), "")
    except ModuleNotFoundError as error:
        if error.name not in _required():
            raise
        _complain(
            f"{error.name} is not installed",
            "pip install golow; without its dependencies only golow run works.",
        )
    except OSError as error:
        if is_without_temporary(error):
            _complain(str(error.strerror), TEMPORARY_HINT)
        if error.errno not in FULL:
            raise
        with suppress(OSError):  # or Python would try again to write what is left, and show how
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        place = error.filename or "the output"
        _complain(f"{place} cannot be written: {error.strerror}", "free some space.")


def _require_current_folder() -> None:
    """Raise `GolowError` if the current folder was removed: paths lead nowhere then, and libraries
    end the process."""
    try:
        os.getcwd()  # noqa: PTH109 - pathlib would have to be imported
    except OSError as error:
        raise GolowError("the current folder was removed", "change to another: cd ~") from error


def _required() -> set[str]:
    """Packages that golow depends on, in every installation."""
    return {
        found[0]
        for line in requires("golow") or ()
        if "extra ==" not in line and (found := re.match(r"\w+", line))
    }


def _complain(message: str, hint: str) -> None:
    print(f"golow: {plain(message)}", file=sys.stderr)
    if hint:
        print(f"  {plain(hint)}", file=sys.stderr)
    sys.exit(2)

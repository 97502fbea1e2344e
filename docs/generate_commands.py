"""Writes the command reference from the help texts of the command line.

    python docs/generate_commands.py > docs/use/commands.md

``tests/repo/test_docs.py`` fails when the file is not what this prints.
"""

from __future__ import annotations

import typer
from typer.cli import get_docs_for_click
from typer.main import get_command

from golow.cli import app

HEAD = """<!-- written by docs/generate_commands.py; do not edit -->
# Commands

This page lists every command with its arguments and options; `golow COMMAND --help` prints the
same. Shapes are those of one sample, without the batch. Tables go to standard output; progress and
messages go to standard error.

| exit status | meaning |
|---|---|
| 0 | `compare`, `generate`, `load`: every level that can run here matches; `train`: no level \
failed or trained a different network; `audit`: no level differs or failed with its defaults; \
`study run`: every cell has a record; `selftest`: timings can be trusted; `levels --support`: no \
level lacks an operator; `run --check`: the outputs match |
| 1 | `compare`, `generate`, `load`, `train`, `audit`: a level differs or failed; `study run`: \
some cells have no record; `levels --support`: a level lacks an operator; `run --check`: an output \
differs; `data verify`: a file does not match; `selftest`: timings cannot be trusted |
| 2 | an error in the command line, the model or the setup; the message states how to fix it |
| 130 | interrupted; `compare`, `generate`, `load`, `audit`, `profile` and `train` show and save \
partial results |
"""


def reference() -> str:
    """The page: a list of the commands, then the arguments and options of each."""
    group = get_command(app)
    context = typer.Context(group, info_name="golow", **group.context_settings)
    names = group.list_commands(context)  # type: ignore[attr-defined]
    commands = [group.get_command(context, name) for name in names]  # type: ignore[attr-defined]
    lines = [HEAD]
    for name, command in zip(names, commands, strict=True):
        first = command.help.partition("\n\n")[0].replace("\n", " ")
        lines.append(f"* [`golow {name}`](#golow-{name}): {first}")
    lines += ["", "`golow --version` prints the version.", ""]
    for command in commands:
        text = get_docs_for_click(obj=command, ctx=context, indent=1, call_prefix="golow")
        lines.append(text.rstrip() + "\n")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(reference(), end="")

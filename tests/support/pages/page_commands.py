"""Commands of golow in a page of the documentation, and what of them the program does not have."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import typer
from typer.main import get_command

from golow.cli import app

BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(golow [^`]*)`")
COMMAND = re.compile(r"^(?:\$ |- run: )?(golow .*)$")


def commands(text: str) -> Iterator[list[str]]:
    """The words of every command of golow in the page's blocks, without what follows a pipe, and in
    its sentences."""
    yield from (shlex.split(found) for found in INLINE.findall(text))
    for block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if found := COMMAND.match(line.strip()):
                yield shlex.split(found[1].rstrip("\\").partition(" | ")[0], comments=True)


def unknown(words: list[str]) -> list[str]:
    """What of the command the program does not have: the command itself, or options of it."""
    command = get_command(app)
    context = typer.Context(command)
    _, *rest = words
    while rest and hasattr(command, "get_command"):
        name = rest[0]
        if name.startswith("-"):
            break
        found = command.get_command(context, name)
        if found is None:
            return [name]
        command, rest = found, rest[1:]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    options = (word.partition("=")[0] for word in rest if word.startswith("--"))
    return [option for option in options if option not in known | {"--help", "--version"}]

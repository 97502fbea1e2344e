"""Commands that golow prints can be pasted: whatever stands for a path in them is quoted."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from typer.main import get_command

from golow.cli import app
from repo.rooms import modules

# Words of golow's own lists, which have no blanks: names of levels, data sets and models.
OWN_WORDS = {"dataset.name", "self.level.name", "request.model"}
QUOTING = {"shell_word", "visible"}  # `visible` of a quoted path


def commands() -> Iterator[str]:
    """What may stand between ``golow`` and a path."""
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        yield name
        yield from (f"{name} {sub}" for sub in getattr(command, "commands", ()))


NAMED = rf"\bgolow (?:{'|'.join(commands())})\b"
BEFORE = re.compile(rf"{NAMED}(?: --[a-z-]+)* $")


def unquoted(source: str) -> list[str]:
    """Expressions in the source that follow a command in a printed text, and are not quoted."""
    texts = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr)]
    pairs = [pair for text in texts for pair in pairwise(text.values)]
    values = [
        after.value
        for before, after in pairs
        if isinstance(before, ast.Constant)
        and isinstance(after, ast.FormattedValue)
        and BEFORE.search(str(before.value))
    ]
    return [ast.unparse(value) for value in values if not _is_word(value)]


def _is_word(value: ast.expr) -> bool:
    quoted = isinstance(value, ast.Call) and ast.unparse(value.func) in QUOTING
    return quoted or ast.unparse(value) in OWN_WORDS


def test_paths_in_printed_commands_are_quoted() -> None:
    sources = {name: file.read_text() for name, file in modules().items()}
    found = {name: unquoted(text) for name, text in sources.items() if re.search(NAMED, text)}
    assert {name: values for name, values in found.items() if values} == {}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('f"golow show {folder}"', ["folder"]),
        ('f"then run " f"golow train --resume {self.folder}."', ["self.folder"]),
        ('f"golow study resume {shell_word(folder)}"', []),
        ('f"golow train needs {what}"', []),
    ],
)
def test_a_planted_path_is_found(text: str, values: list[str]) -> None:
    assert unquoted(text) == values

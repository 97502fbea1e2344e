"""The examples of all declared rules, and which of them are missing.

``tests/lower/FOLDER/examples/NAME.py`` has those of ``golow/lower/FOLDER/NAME.py``: EXAMPLES, by
the names that the rules have there.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import golow.lower
from golow.lower.ir.operator import modules_in
from golow.lower.ir.patterns import Rule
from support.graphs.example_files import examples_in
from support.graphs.written_graphs import Fires, Stays


class Declared(NamedTuple):
    """A rule; folder, file, name: where, and as what, it is declared in ``golow/lower``."""

    rule: Rule
    folder: str
    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file}.{self.name}"


def declared() -> list[Declared]:
    """Every rule, where it is defined and not imported."""
    return [
        Declared(item, *_place(module), name)
        for module in modules_in(golow.lower)
        for name, item in vars(module).items()
        if isinstance(item, Rule) and name not in _imported(module)
    ]


def _imported(module: ModuleType) -> set[str]:
    found = ast.walk(ast.parse(inspect.getsource(module)))
    imports = (item for item in found if isinstance(item, ast.ImportFrom))
    return {alias.asname or alias.name for item in imports for alias in item.names}


def _place(module: ModuleType) -> tuple[str, str]:
    inside = module.__name__.removeprefix(f"{golow.lower.__name__}.")
    folder, _, file = inside.rpartition(".")
    return folder.replace(".", "/"), file


RULES = declared()
FILES: dict[tuple[str, str], Mapping[str, Sequence[Fires | Stays]]] = {
    (folder, file): module.EXAMPLES
    for folder in sorted({rule.folder for rule in RULES})
    for file, module in examples_in(folder).items()
}


def examples_of(rule: Declared) -> Sequence[Fires | Stays]:
    return FILES.get((rule.folder, rule.file), {}).get(rule.name, ())


def missing(rule: Declared, examples: Sequence[Any]) -> list[str]:
    """What the examples of a rule lack, each with the place where it belongs."""
    place = f"tests/lower/{rule.folder}/examples/{rule.file}.py: EXAMPLES[{rule.name!r}]"
    return [
        f"{place} lacks a graph on which the rule {what}"
        for kind, what in ((Fires, "fires: Fires(...)"), (Stays, "must not fire: Stays(...)"))
        if not any(isinstance(each, kind) for each in examples)
    ]

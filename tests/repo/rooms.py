"""The pictures of rooms in docs/architecture.md and docs/extend/rooms.md, and what the files of the
package load.

A picture stands below ``<!-- rooms: golow/... -->``: a line for each row of rooms, the highest
first. A line begins with the row's rooms, folders as ``name/`` and files as ``name.py``; what
follows are words. A line that begins with white space belongs to the one before.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import golow

SOURCES = Path(golow.__file__).parent
PICTURE = re.compile(r"<!-- rooms: golow(?P<folder>[\w/]*) -->\n```\n(?P<rows>.*?)```", re.DOTALL)
ROOM = re.compile(r"(\w+)(?:/|\.py)(?=\s|$)")

# Each row's rooms, from the ground up, by folder below the package.
Pictures = dict[str, list[set[str]]]


def pictures(page: str) -> Pictures:
    """All pictures of a page, by the folder that they show: ``""`` is the package."""
    return {
        found["folder"].strip("/"): [set(row) for row in reversed(list(_rows(found["rows"])))]
        for found in PICTURE.finditer(page)
    }


def _rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        rooms, position = list[str](), 0
        while (found := ROOM.match(line, position)) is not None:
            rooms.append(found[1])
            position = found.end() + len(line[found.end() :]) - len(line[found.end() :].lstrip())
        if rooms:
            yield rooms


def rooms_in(folder: Path) -> set[str]:
    """Names of the modules and packages in a folder, but for the package itself."""
    files = {file.stem for file in folder.glob("*.py")} - {"__init__"}
    return files | {file.parent.name for file in folder.glob("*/__init__.py")}


def modules() -> dict[str, Path]:
    """Every file of the package, by its module's path: ``measure/race``, ``""`` for the package."""
    found = {}
    for file in sorted(SOURCES.rglob("*.py")):
        name = str(file.relative_to(SOURCES).with_suffix(""))
        found["" if name == "__init__" else name.removesuffix("/__init__")] = file
    return found


def imports(file: Path, by_strings: bool = True) -> set[str]:
    """Modules of golow that the file loads when it runs, anywhere in it: by an import statement,
    or by a string such as ``"golow.worker.plant"``."""
    nodes = (n for n in _nodes(file) if by_strings or not isinstance(n, ast.Constant))
    names = {name for node in nodes for name in _loaded(node)}
    return {name.removeprefix("golow.").replace(".", "/") for name in names}


@cache
def _nodes(file: Path) -> list[ast.AST]:
    """The nodes of the file's syntax tree that may load a module when it runs."""
    found: list[ast.AST] = []
    pending: list[ast.AST] = [ast.parse(file.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and _is_for_annotations(node.test):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Constant)):
            found.append(node)
        pending.extend(ast.iter_child_nodes(node))
    return found


def _is_for_annotations(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _loaded(node: ast.AST) -> Iterator[str]:
    """Full names of what one node of the syntax tree loads from golow."""
    if isinstance(node, ast.ImportFrom) and node.module == "golow":
        yield from (f"golow.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("golow."):
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            yield name if _module_exists(name) else str(node.module)
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.startswith("golow."))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        found = re.fullmatch(r"(golow(?:\.[a-z_]+)+)\.?", node.value)
        if found and _module_exists(found[1]):
            yield found[1]


def _module_exists(name: str) -> bool:
    place = SOURCES / name.removeprefix("golow.").replace(".", "/")
    return place.is_dir() or place.with_suffix(".py").exists()

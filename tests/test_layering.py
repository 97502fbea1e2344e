"""Data flows one way: every part imports only what stands above it in the order of the folders."""

from __future__ import annotations

import ast
from pathlib import Path

import golow

SOURCES = Path(golow.__file__).parent

# The order of docs/architecture.md. Parts of one line may import one another.
ORDER = [
    {"record"},
    {"training_record", "study_record"},
    {"models"},
    {"data"},
    {"source"},
    {"batch"},
    {"trial"},
    {"workload"},
    {"lower"},
    {"bundle"},
    {"levels", "worker"},
    {"check"},
    {"starter"},
    {"standard"},
    {"measure"},
    {"store"},
    {"training_store", "study_store"},
    {"entrant"},
    {"report"},
    {"comparison", "emit", "lowering", "selftest"},
    {"training", "study"},
    {"options"},
    {"commands"},
    {"cli"},
    {"__init__", "__main__"},
]


def rank(part: str) -> int:
    return next(i for i, parts in enumerate(ORDER) if part in parts)


def imports(file: Path) -> set[str]:
    """Parts of golow that the file imports when it runs, anywhere in it."""
    tree = ast.parse(file.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("golow"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("golow.")}
    return found


def test_every_part_imports_only_what_stands_above_it() -> None:
    wrong = []
    for file in sorted(SOURCES.rglob("*.py")):
        part = file.relative_to(SOURCES).parts[0].removesuffix(".py")
        for other in imports(file) - {part, "__init__"}:
            if rank(other) > rank(part):
                wrong.append(f"{file.relative_to(SOURCES)} imports {other}")
    assert not wrong


def test_the_test_sees_an_import_that_goes_up(tmp_path: Path) -> None:
    planted = tmp_path / "record.py"
    planted.write_text("def f():\n    from golow.cli import main\n")
    assert imports(planted) == {"cli"}
    assert rank("cli") > rank("record")

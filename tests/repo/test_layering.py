"""Data flows one way: every room imports only rooms that stand below it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import golow

SOURCES = Path(golow.__file__).parent

# The rooms of docs/architecture.md from the ground up. A room imports itself and what stands in
# lower rows; rooms of one row do not know each other.
ROWS = [
    {"record"},
    {"files", "interrupts", "observer", "spreadsheet"},
    {"cache", "lock", "scratch"},
    {"models", "data"},
    {"lower"},
    {"workload"},
    {"worker"},
    {"levels/probe"},
    {"levels/compiler", "levels/gpu", "levels/level", "levels/choices", "levels/nvidia"},
    {"levels/torch", "levels/peers", "levels/direct"},
    {"levels/traced"},
    {
        "levels/direct/onednn",
        "levels/direct/cudnn",
        "levels/libtorch",
        "levels/traced/jax",
        "levels/traced/tensorflow",
    },
    {"levels/aotinductor"},
    {"levels"},
    {"measure"},
    {"check"},
    {"comparison"},
    {"explain", "profiling", "training", "auditing", "life"},
    {"study"},
    {"report"},
    {"report/comparison"},
    {"report/training"},
    {"report/profiling"},
    {"report/life"},
    {"report/study", "report/audit"},
    {"report/page"},
    {"api"},
    {"commands"},
    {"cli"},
    {"__init__", "__main__"},
]
ROOMS = sorted((room for row in ROWS for room in row), key=len, reverse=True)


def room_of(module: str) -> str:
    """The room of a module, which is named by its path below the package: ``measure/race``."""
    for room in ROOMS:
        if module == room or module.startswith(f"{room}/"):
            return room
    raise AssertionError(f"{module} is in no room of docs/architecture.md")


def rank(room: str) -> int:
    return next(i for i, row in enumerate(ROWS) if room in row)


def imports(file: Path) -> set[str]:
    """Modules of golow that the file loads when it runs, anywhere in it: by an import statement,
    or by a string such as ``"golow.worker.plant"``."""
    tree = ast.parse(file.read_text())
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    names = {name for node in ast.walk(tree) if id(node) not in skipped for name in loaded(node)}
    return {name.removeprefix("golow.").replace(".", "/") for name in names}


def loaded(node: ast.AST) -> Iterator[str]:
    """Full names of what one node of the syntax tree loads from golow."""
    if isinstance(node, ast.ImportFrom) and node.module == "golow":
        yield from (f"golow.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("golow."):
        for alias in node.names:
            below = SOURCES / f"{node.module}.{alias.name}".removeprefix("golow.").replace(".", "/")
            is_module = below.is_dir() or below.with_suffix(".py").exists()
            yield f"{node.module}.{alias.name}" if is_module else str(node.module)
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.startswith("golow."))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        found = re.fullmatch(r"(golow(?:\.[a-z_]+)+)\.?", node.value)
        if found and module_exists(found[1]):
            yield found[1]


def module_exists(name: str) -> bool:
    place = SOURCES / name.removeprefix("golow.").replace(".", "/")
    return place.is_dir() or place.with_suffix(".py").exists()


def module_of(file: Path) -> str:
    name = str(file.relative_to(SOURCES).with_suffix(""))
    return name if name == "__init__" else name.removesuffix("/__init__")


def upward(module: str, loads: set[str]) -> list[str]:
    """What a module loads although it does not stand below it."""
    own = room_of(module)
    return [
        f"{module} ({own}) loads {other} ({room_of(other)})"
        for other in sorted(loads)
        if room_of(other) != own and rank(room_of(other)) >= rank(own)
    ]


def test_every_room_imports_only_rooms_below_it() -> None:
    wrong = []
    for file in sorted(SOURCES.rglob("*.py")):
        wrong += upward(module_of(file), imports(file))
    assert wrong == []


def test_no_program_imports_a_report() -> None:
    """Programs return plain records; `golow.api` joins them with reports."""
    programs = ("comparison", "explain", "training", "life", "study")
    assert all(rank(program) < rank("report") for program in programs)
    assert rank("report") < rank("api")


def test_a_training_needs_no_comparison() -> None:
    """It starts levels by what the check offers; only the writing of records is shared so far."""
    loads = set[str]().union(*map(imports, sorted((SOURCES / "training").rglob("*.py"))))
    assert {name for name in loads if room_of(name) == "comparison"} <= {
        "programs/comparison/store"
    }


def test_the_test_sees_an_import_that_goes_up(tmp_path: Path) -> None:
    planted = tmp_path / "record.py"
    planted.write_text("def f():\n    from golow.cli import main\n")
    assert imports(planted) == {"cli"}
    assert upward("record", imports(planted)) != []


def test_the_test_sees_a_module_loaded_by_a_string(tmp_path: Path) -> None:
    planted = tmp_path / "frontend.py"
    planted.write_text(
        'load("golow.levels.direct.onednn.build.builder")\nload(f"golow.programs.study.{name}")\n'
    )
    assert imports(planted) == {"levels/direct/onednn/build/builder", "study"}
    assert len(upward("levels/direct/cudnn/bindings/frontend", imports(planted))) == 2


def test_neighbours_do_not_know_each_other() -> None:
    assert upward("levels/direct/onednn/build/builder", {"levels/direct/cudnn/build/builder"}) != []
    assert upward("levels/direct/onednn/build/builder", {"levels/direct/bundle_arrays"}) == []


def test_imports_for_annotations_are_free(tmp_path: Path) -> None:
    planted = tmp_path / "units.py"
    planted.write_text("if TYPE_CHECKING:\n    from golow.cli import main\n")
    assert imports(planted) == set()

"""Data flows one way: every room imports only rooms that stand below it, as docs/architecture.md
and docs/extend/rooms.md draws them, and no two files import each other."""

from __future__ import annotations

from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from repo.rooms import SOURCES, Pictures, imports, modules, pictures, rooms_in
from support.places import DOCS

MAP = (DOCS / "architecture.md", DOCS / "extend" / "rooms.md")
ROOMS = pictures("".join(page.read_text() for page in MAP))

# A base class that finds its operators by listing their folder.
DISCOVERED = {"lower/ir/operator": "lower/operators"}

# What stands nowhere else than in the picture would go unseen if these lost theirs.
DRAWN = ("", "levels", "levels/direct", "levels/direct/cudnn", "levels/direct/onednn", "lower")


@cache
def loaded(by_strings: bool = True) -> dict[str, set[str]]:
    """What each module loads. To read all of them takes seconds: nothing that is collected does."""
    return {module: imports(file, by_strings) for module, file in modules().items()}


def upward(rooms: Pictures, module: str, loads: set[str]) -> list[str]:
    """What a module loads although it does not stand below it, in any picture that shows both."""
    found = []
    for folder, rows in rooms.items():
        own = room_of(folder, module)
        for other in sorted(loads):
            theirs = room_of(folder, other)
            if own and theirs and own != theirs and rank(rows, theirs) >= rank(rows, own):
                found.append(f"in {folder or 'golow'}: {module} ({own}) loads {other} ({theirs})")
    return found


def room_of(folder: str, module: str) -> str:
    """The room of a picture that contains the module; empty if it is in none of them."""
    inside = module if not folder else module.removeprefix(f"{folder}/")
    return inside.split("/")[0] if not folder or inside != module else ""


def rank(rows: list[set[str]], room: str) -> int:
    return next(i for i, row in enumerate(rows) if room in row)


def test_the_pictures_show_what_is_there() -> None:
    """A room that is in no picture could import anything."""
    assert set(DRAWN) <= set(ROOMS)
    for folder, rows in ROOMS.items():
        shown = [room for row in rows for room in row]
        assert sorted(shown) == sorted(rooms_in(SOURCES / folder)), folder


@pytest.mark.parametrize("folder", ROOMS, ids=lambda folder: folder or "golow")
def test_every_room_imports_only_rooms_below_it(folder: str) -> None:
    wrong = []
    for module, loads in loaded().items():
        if module:  # the package's face loads what is asked of it
            wrong += upward({folder: ROOMS[folder]}, module, loads - {DISCOVERED.get(module)})
    assert wrong == []


def test_nobody_imports_the_face_of_the_package() -> None:
    """``golow.compare`` and its like are for users."""
    assert [module for module, loads in loaded().items() if "" in loads - {module}] == []


def circle(loads: dict[str, set[str]]) -> list[str]:
    """Modules that import each other, in any number of steps: one circle, if there is any."""
    try:
        TopologicalSorter({module: of - {module} for module, of in loads.items()}).prepare()
    except CycleError as found:
        return list(found.args[1])
    return []


def test_no_two_files_import_each_other() -> None:
    """What another process runs, named by a string, may import who started it."""
    assert circle(loaded(by_strings=False)) == []


def test_no_program_imports_a_report() -> None:
    """Programs return plain records; `golow.api` joins them with reports."""
    assert rank(ROOMS[""], "programs") < rank(ROOMS[""], "report") < rank(ROOMS[""], "api")


def test_a_training_needs_no_comparison() -> None:
    """It starts levels by what the check offers; only the writing of records is shared so far."""
    training = [
        loads for module, loads in loaded().items() if module.startswith("programs/training")
    ]
    shared = {name for name in set().union(*training) if name.startswith("programs/comparison")}
    assert shared <= {"programs/comparison/store"}


# ---------------------------------------------------------------- the test sees what is wrong

PAGE = """
<!-- rooms: golow -->
```
cli.py  commands/   assemble the command line, from report/ and others
                    in two lines
report/
records/  storage/
```
<!-- rooms: golow/levels/direct -->
```
onednn/  cudnn/     two levels
kernel_views.py
```
"""


def test_a_picture_is_read_as_it_looks() -> None:
    read = pictures(PAGE)
    assert read == {
        "": [{"records", "storage"}, {"report"}, {"cli", "commands"}],
        "levels/direct": [{"kernel_views"}, {"onednn", "cudnn"}],
    }


def test_the_test_sees_an_import_that_goes_up(tmp_path: Path) -> None:
    planted = tmp_path / "record.py"
    planted.write_text("def f():\n    from golow.cli import main\n")
    assert imports(planted) == {"cli"}
    assert upward(pictures(PAGE), "records/record", imports(planted)) == [
        "in golow: records/record (records) loads cli (cli)"
    ]


def test_the_test_sees_a_module_loaded_by_a_string(tmp_path: Path) -> None:
    planted = tmp_path / "frontend.py"
    planted.write_text(
        'load("golow.levels.direct.onednn.planning")\nload(f"golow.programs.study.{name}")\n'
    )
    assert imports(planted) == {"levels/direct/onednn/planning", "programs/study"}
    assert len(upward(ROOMS, "levels/direct/cudnn/bindings/frontend", imports(planted))) == 2


def test_neighbours_do_not_know_each_other() -> None:
    read = pictures(PAGE)
    onednn = "levels/direct/onednn/planning"
    assert upward(read, onednn, {"levels/direct/cudnn/planning"}) != []
    assert upward(read, onednn, {"levels/direct/kernel_views"}) == []
    assert upward(read, onednn, {"levels/direct/onednn/level"}) == []


def test_the_test_sees_a_circle_of_two_and_of_three() -> None:
    assert set(circle({"a": {"b"}, "b": {"a", "c"}, "c": set()})) == {"a", "b"}
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_imports_for_annotations_are_free(tmp_path: Path) -> None:
    planted = tmp_path / "units.py"
    planted.write_text("if TYPE_CHECKING:\n    from golow.cli import main\n")
    assert imports(planted) == set()

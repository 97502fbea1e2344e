"""A user's folders may hold modules with the names of Python's own: golow's processes do not load
them, and a model finds what is beside it."""

from __future__ import annotations

import os
import re
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

import golow
from golow.records.workload import ModelSource
from golow.worker.client import Worker
from golow.workload.import_path import (
    STANDARD,
    module_command,
    python_environment,
    searched_first,
)
from golow.workload.source import build_module
from support.workers.bundles import product_bundle

HOSTILE = "raise SystemExit('the user has a module of this name')\n"
STANDARD_NAMES = ("random.py", "types.py", "profile.py", "numpy.py")
MODEL = """
from torch import nn
from beside_the_model import width

class Net(nn.Module):
    def __init__(self):
        from beside_the_model_too import depth
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with modules that must not be imported."""
    for name in STANDARD_NAMES:
        (tmp_path / name).write_text(HOSTILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def load(folder: Path) -> None:
    """Start a worker, which loads a bundle."""
    bundle = product_bundle(folder / "bundle")
    command = module_command("golow.worker.plant", "--products", "1")
    with Worker("plant", command, threads=1) as worker:
        worker.load(bundle.folder)


def found(name: str, path: list[str] | None = None) -> Path:
    """The file that an import of that module would load now."""
    spec = PathFinder.find_spec(name, path)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin)


def test_a_worker_imports_nothing_from_the_current_folder_or_the_models(folder: Path) -> None:
    sys.path.append(str(folder))
    load(folder)


def test_a_worker_takes_pythons_own_modules_before_those_of_the_scripts_folder(
    folder: Path,
) -> None:
    """As a notebook does, which has imported them before its folder is on the path."""
    (folder / "numpy.py").unlink()
    sys.path.insert(0, str(folder))
    load(folder)


def test_a_model_finds_what_is_beside_it_and_later_imports_what_is_installed(folder: Path) -> None:
    (folder / "beside_the_model.py").write_text("width = 3\n")
    (folder / "beside_the_model_too.py").write_text("depth = 2\n")
    (folder / "net.py").write_text(MODEL)
    before = list(sys.path)
    for source in (
        ModelSource(kind="file", name=str(folder / "net.py"), attribute="Net"),
        ModelSource(kind="import", name="net", attribute="Net"),
    ):
        module = build_module(source)
        assert len(list(module.parameters())) == 4
        assert sys.path == [*before, str(folder)]
        assert all(folder not in found(Path(name).stem).parents for name in STANDARD_NAMES)
    for name in ("net", "beside_the_model", "beside_the_model_too"):
        sys.modules.pop(name, None)


def test_a_models_folder_is_first_while_it_is_imported(folder: Path) -> None:
    with searched_first(folder):
        assert found("profile") == folder / "profile.py"
    assert sys.path[-1] == str(folder)
    with searched_first(folder):
        del sys.path[0]  # as a model's code may
    assert sys.path.count(str(folder)) <= 1


def test_a_folder_keeps_the_place_that_it_had(folder: Path) -> None:
    sys.path.insert(1, str(folder))
    before = list(sys.path)
    with searched_first(folder):
        assert sys.path == [str(folder), *before]
    assert sys.path == before


def test_a_new_process_finds_the_standard_library_first(folder: Path) -> None:
    sys.path[:0] = ["", str(folder / "mine"), Path("no text")]  # type: ignore[list-item]
    paths = python_environment()["PYTHONPATH"].split(os.pathsep)
    assert found("profile", paths) == Path(STANDARD) / "profile.py"
    others = [path for path in paths if not path.startswith(STANDARD)]
    assert others[:2] == [str(folder), str(folder / "mine")]


def test_all_processes_of_golow_are_started_by_one_function() -> None:
    sources = Path(golow.__file__).parent
    started = re.compile(r'sys\.executable,\s*"-m"')
    found = [file.name for file in sources.rglob("*.py") if started.search(file.read_text())]
    assert found == []

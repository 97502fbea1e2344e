"""A user's folders may hold modules with the names of Python's own: golow's processes do not load
them, and a model finds what is beside it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

import golow
from golow.worker.client import Worker
from golow.workload import import_path
from golow.workload.import_path import module_command, python_environment, search_first
from support.workers.bundles import product_bundle

HOSTILE = "raise SystemExit('the user has a module of this name')\n"
STANDARD = ("random.py", "types.py", "profile.py", "numpy.py")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with modules that must not be imported."""
    for name in STANDARD:
        (tmp_path / name).write_text(HOSTILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(import_path, "_added", [])
    return tmp_path


def test_a_worker_imports_nothing_from_the_current_folder_or_the_models(folder: Path) -> None:
    bundle = product_bundle(folder / "bundle")
    search_first(folder)
    command = module_command("golow.worker.plant", "--products", "1")
    with Worker("plant", command, threads=1) as worker:
        worker.load(bundle.folder)


def test_a_models_folder_is_first_here_and_last_in_a_new_process(folder: Path) -> None:
    before = list(sys.path)
    search_first(folder)
    search_first(folder)
    assert sys.path == [str(folder), *before]
    paths = python_environment()["PYTHONPATH"].split(os.pathsep)
    assert paths == [*(path or str(folder) for path in before), str(folder)]


def test_a_folder_that_a_new_process_has_last_can_be_its_first(folder: Path) -> None:
    sys.path.append(str(folder))
    search_first(folder)
    assert sys.path[0] == str(folder)


def test_all_processes_of_golow_are_started_by_one_function() -> None:
    sources = Path(golow.__file__).parent
    started = re.compile(r'sys\.executable,\s*"-m"')
    found = [file.name for file in sources.rglob("*.py") if started.search(file.read_text())]
    assert found == []

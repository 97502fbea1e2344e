"""`golow doctor` says which packages that models use do not import beside this torch."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from golow.report.comparison import lists
from golow.workload.hub.companions import IMPORTS, Companion, companion
from support.command import golow

WRONG_BUILD = 'raise RuntimeError("operator torchvision::nms does not exist")\n'
MINOR = int(version("torch").split(".")[1])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages here come before those that are installed."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def package(folder: Path, name: str, code: str, number: str = "0.1") -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(code)
    about = folder / f"{name}-{number}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Name: {name}\nVersion: {number}\n")


def test_a_package_that_imports_has_no_fault(folder: Path) -> None:
    package(folder, "timm", "")
    assert companion("timm", "import timm") == Companion("timm", "0.1")


def test_a_module_in_the_current_folder_is_not_imported(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(folder, "timm", "import calendar\n")
    current = tmp_path_factory.mktemp("current")
    (current / "calendar.py").write_text("raise SystemExit('the user has such a module')\n")
    monkeypatch.chdir(current)
    assert companion("timm", "import timm").fault == ""


def test_a_package_that_is_not_there_is_no_fault() -> None:
    assert companion("nopackageofthisname", "") == Companion("nopackageofthisname")


def test_a_torchvision_of_another_build_is_named_with_the_right_one(folder: Path) -> None:
    package(folder, "torchvision", WRONG_BUILD, "0.20.0")
    found = companion("torchvision", "import torchvision")
    assert (found.version, found.fault) == (
        "0.20.0", "RuntimeError: operator torchvision::nms does not exist",
    )  # fmt: skip
    assert found.fix.startswith(f"pip install 'torchvision==0.{MINOR + 15}.*'")


def test_torchvision_is_at_fault_where_another_package_imports_it(folder: Path) -> None:
    package(folder, "torchvision", WRONG_BUILD)
    package(folder, "timm", "import torchvision\n")
    assert "torchvision==" in companion("timm", "import timm").fix


def test_another_fault_is_the_packages_own(folder: Path) -> None:
    package(folder, "jax", "import nopackageofthisname\n")
    assert companion("jax", "import jax").fix == "pip install --upgrade jax"
    package(folder, "timm", "import os; os._exit(3)\n")
    assert companion("timm", "import timm").fault == "its import ends Python with status 3"


def test_doctor_shows_each_and_the_load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in IMPORTS:
        package(folder, name, WRONG_BUILD if name == "torchvision" else "x = 1\n")
    package(folder, "nothing", "")
    monkeypatch.setattr(lists.os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    output = golow("doctor").output
    assert "torchvision: 0.1, does not import with this torch: RuntimeError" in output
    assert f"\n  pip install 'torchvision==0.{MINOR + 15}.*'" in output
    assert "timm: 0.1, imports with this torch" in output
    assert "jax: 0.1, imports with this torch" in output
    assert "load: 1000.0 in the last minute" in output and "other programs use the CPU" in output

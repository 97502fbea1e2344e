"""The wheel: it holds all files of the package and no others, is small, and works where it is
installed, away from the checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from support.places import ROOT

SOURCES = ROOT / "src"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
LIMIT = 3_400_000  # bytes. It has 3.0 million; one forgotten data set or binary is more than that


def build(place: Path, into: Path) -> Path:
    """The wheel of the project that is there. Built as ``make wheel`` does, without a network."""
    run(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
        *("--no-index", "--wheel-dir", into, place),
        folder=into.parent,
    )
    (wheel,) = into.glob("*.whl")
    return wheel


def run(*command: str | Path, folder: Path) -> str:
    """What the command prints; it must end well."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def files_of(wheel: Path) -> set[str]:
    """The files of the package in the wheel, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    return {name for name in names if ".dist-info/" not in name}


def files_in(sources: Path) -> set[str]:
    """The files of the package in a checkout, without what Python compiled."""
    found = (path for path in (sources / "golow").rglob("*") if path.is_file())
    return {str(path.relative_to(sources)) for path in found if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel") / "dist")


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    files = files_of(wheel)
    assert files == files_in(SOURCES)
    kinds = {Path(name).suffix for name in files}
    assert kinds >= {".py", ".cpp", ".csv", ".cu", ".cuh", ".h", ".html", ".js", ".npz", ".toml"}


@pytest.mark.slow
def test_a_file_that_the_wheel_lacks_is_seen(tmp_path: Path) -> None:
    """Hatchling leaves out what git ignores: a pattern without its slash takes a folder of the
    package with it."""
    place = tmp_path / "checkout"
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        place.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, place)
    package = place / "src" / "golow"
    (package / "build").mkdir(parents=True)
    for name in ("__init__.py", "build/__init__.py", "build/kernel.cu"):
        (package / name).write_text("")
    (place / ".gitignore").write_text("build/\n")
    lacking = files_in(place / "src") - files_of(build(place, tmp_path / "dist"))
    assert lacking == {"golow/build/__init__.py", "golow/build/kernel.cu"}


def test_the_wheel_is_small(wheel: Path) -> None:
    size = wheel.stat().st_size
    print(f"{size:,} bytes")
    assert size < LIMIT


def install(wheel: Path, place: Path, beside: Iterable[str]) -> Path:
    """A new virtual environment with the wheel in it; returns its folder of programs. beside:
    folders whose packages are there, too, so that nothing is downloaded."""
    run(sys.executable, "-m", "venv", "--without-pip", place, folder=place.parent)
    programs = place / "bin"
    run(
        *(sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet"),
        *("--no-deps", "--no-index", "--no-compile", wheel),
        folder=place.parent,
    )
    (packages,) = place.glob("lib/python3*/site-packages")
    (packages / "beside.pth").write_text("".join(f"{folder}\n" for folder in beside))
    return programs


@pytest.mark.slow
def test_an_installed_wheel_answers_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    """The folders of packages are read without their own .pth files, so that a checkout that is
    installed there in place is not found."""
    beside = [folder for folder in sys.path if Path(folder).name == "site-packages"]
    programs = install(wheel, tmp_path / "environment", beside)
    empty = tmp_path / "empty"
    empty.mkdir()
    imported = run(programs / "python", "-c", "import golow; print(golow.__file__)", folder=empty)
    assert Path(imported.strip()).is_relative_to(tmp_path / "environment")
    said = run(programs / "golow", "doctor", folder=empty)
    assert "\neager " in said and "can run here" in said
    assert f"golow {VERSION}" in " ".join(said.split())
    listed = run(programs / "golow", "levels", folder=empty)
    assert all(f"\n{level} " in listed for level in ("eager", "libtorch", "onednn", "cudnn"))
    assert list(empty.iterdir()) == []

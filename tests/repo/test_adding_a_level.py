"""docs/extend/adding_a_level.md followed to the letter: its files are written, its changes made and
its commands run, in a copy of the checkout."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from support.one_run import program_cache
from support.places import ROOT

PAGE = (ROOT / "docs" / "extend" / "adding_a_level.md").read_text()
LISTING = re.compile(r"^<!-- (file|change|run)(?:: (\S+))? -->\n```\w*\n(.*?)^```$", re.M | re.S)
STEPS, OWN = "## A level, step by step", "## A worker of your own"
PROGRAMS = {"golow": ["-m", "golow"], "pytest": ["-m", "pytest", "-q", "-p", "no:cacheprovider"],
            "python": []}  # fmt: skip


class Listing(NamedTuple):
    """kind: file, change or run. place: from the checkout's root; empty for commands."""

    kind: str
    place: str
    text: str


def listings(text: str) -> list[Listing]:
    """The marked listings of a page, in their order."""
    return [Listing(*found) for found in LISTING.findall(text)]


def changed(text: str, change: str) -> str:
    """The text with lines taken out (-) and put in (+). The rest must stand there exactly once."""
    lines = change.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] != "+")
    after = "".join(line[1:] for line in lines if line[0] != "-")
    assert text.count(before) == 1, f"there are {text.count(before)} places for\n{change}"
    return text.replace(before, after)


def apply(listing: Listing, checkout: Path) -> None:
    """Write the file, or change it, as the page says."""
    file = checkout / listing.place
    file.parent.mkdir(exist_ok=True)
    if listing.kind == "file":
        file.write_text(listing.text)
    else:
        file.write_text(changed(file.read_text(), listing.text))


def run(command: str, folder: Path, *import_from: Path) -> str:
    """What the command of the page prints; it must end well."""
    program, *arguments = shlex.split(command)
    done = subprocess.run(
        [sys.executable, *PROGRAMS[program], *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GOLOW_CACHE": str(program_cache(folder)),
            "PYTHONPATH": os.pathsep.join(map(str, import_from)),
        },
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the page's commands need."""
    place = tmp_path_factory.mktemp("checkout")
    for name in ("src", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", place)
    return place


@pytest.mark.whole_network
def test_a_level_is_added_as_printed(checkout: Path) -> None:
    ran = []
    for listing in listings(PAGE.partition(STEPS)[2].partition(OWN)[0]):
        if listing.kind != "run":
            apply(listing, checkout)
            continue
        for command in listing.text.splitlines():
            printed = run(command, checkout, checkout / "src")
            ran.append(command.split()[0])
            if "compare" in command:
                assert re.search(r"^ scripted +match ", printed, re.M), printed
            if "pytest" in command:
                assert int(re.findall(r"(\d+) passed", printed)[-1]) > 1, printed
    assert ran == ["golow"] * 2 + ["pytest"] * 2 + ["python"]


@pytest.mark.whole_network
def test_a_worker_of_ones_own_runs_as_printed(checkout: Path) -> None:
    commands: list[str] = []
    for listing in listings(PAGE.partition(OWN)[2]):
        if listing.kind == "run":
            commands += listing.text.splitlines()
        else:
            apply(listing, checkout)
    by_worker, conformance, by_name = commands
    own, package = checkout / "own", checkout / "package"
    row = re.compile(r"^ mine +match ", re.M)
    assert row.search(run(by_worker, own, checkout / "src"))
    assert re.search(r"^3\d passed", run(conformance, checkout, checkout / "src"), re.M)
    install(package)
    assert row.search(run(by_name, own, checkout / "src", package, own))


def install(package: Path) -> None:
    """What an installer makes of the package's metadata, without its build back end."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["golow.levels"]
    metadata = package / f"my_levels-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    named = "".join(f"{name} = {value}\n" for name, value in points.items())
    (metadata / "entry_points.txt").write_text(f"[golow.levels]\n{named}")


def test_every_listing_fits(checkout: Path) -> None:
    """Files and changes, in their order; what the commands print is a slow test's."""
    for listing in listings(PAGE):
        if listing.kind != "run":
            apply(listing, checkout)


def test_a_change_that_no_longer_fits_is_seen() -> None:
    assert changed("a\nb\nc\n", " a\n-b\n+d\n") == "a\nd\nc\n"
    with pytest.raises(AssertionError, match="there are 0 places"):
        changed("a\nc\n", " a\n-b\n")
    with pytest.raises(AssertionError, match="there are 2 places"):
        changed("a\na\n", " a\n+b\n")

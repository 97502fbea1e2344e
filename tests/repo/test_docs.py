"""The documentation is true: links lead somewhere, generated pages are current, examples run."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from repo.rooms import pictures
from support.one_run import program_cache
from support.places import DOCS, ROOT, TESTS
from support.processes import on_one_core

SOURCES = ROOT / "src" / "golow"
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
)

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
TESTED = re.compile(r"^<!-- tested -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^<!-- file: (\S+) -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEST = re.compile(r"^<!-- test: (\S+) -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@on_one_core()
def run(command: list[str], folder: Path, *import_from: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={
            **os.environ,
            "GOLOW_CACHE": str(program_cache(folder.parent)),  # what was built is kept
            "PYTHONPATH": os.pathsep.join(map(str, import_from or (SOURCES.parent,))),
        },
    )


# ---------------------------------------------------------------- links


def broken_links(page: Path, text: str) -> list[str]:
    """Relative links of the page that lead to no file, or to no heading of a page."""
    broken = []
    for link in LINK.findall(FENCED.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        found = target.exists()
        if found and anchor:
            found = anchor in anchors(text if target == page else target.read_text())
        if not found:
            broken.append(link)
    return broken


def anchors(text: str) -> set[str]:
    """Names that a page's headings have as link targets."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page, page.read_text()) == []


def test_a_broken_link_is_seen() -> None:
    page = ROOT / "docs" / "start" / "quickstart.md"
    text = "# A page\n[a](nowhere.md) [b](quickstart.md) [c](#a-page) [d](#b-page) [e](https://x.y)"
    assert broken_links(page, text) == ["nowhere.md", "#b-page"]


# ---------------------------------------------------------------- pages that follow the code


@pytest.mark.slow
def test_the_command_reference_is_current() -> None:
    printed = run([sys.executable, str(ROOT / "docs" / "generate_commands.py")], ROOT)
    assert printed.returncode == 0, printed.stderr
    assert (ROOT / "docs" / "use" / "commands.md").read_text() == printed.stdout, (
        "python docs/generate_commands.py > docs/use/commands.md"
    )


EXTEND = DOCS / "extend"
ROOMS = (DOCS / "architecture.md").read_text() + (EXTEND / "rooms.md").read_text()


def undescribed_rooms(text: str) -> list[str]:
    """Rooms of the pictures of the package and of lower/ that the text does not name: folders as
    `name/`, files as `name.py`."""
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", text))
    drawn = pictures(text)
    rooms = {room for row in drawn[""] for room in row}
    shelves = {room for row in drawn["lower"] for room in row} - {"to_vocabulary"}
    rooms |= {f"lower/{shelf}" for shelf in shelves}
    return sorted(room for room in rooms if not named & {f"{room}/", f"{room}.py"})


def missing_places(text: str) -> list[str]:
    """Files and folders that the page names and that the package does not have."""
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", text))
    there = {str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*")} | {"last"}
    return sorted(
        name
        for name in named
        if not any(f"/{path}".endswith(f"/{name.removesuffix('/')}") for path in there)
        and not (ROOT / name).exists()
    )


def test_the_map_describes_every_room_and_no_other() -> None:
    assert undescribed_rooms(ROOMS) == []
    pages = [ROOMS, *((EXTEND / name).read_text() for name in ("programs.md", "decisions.md"))]
    assert [missing_places(page) for page in pages] == [[], [], []]


def test_a_room_that_the_map_leaves_out_is_seen() -> None:
    assert "check" in undescribed_rooms(ROOMS.replace("`check/`", "`tests/`"))
    assert missing_places("`attic/` and `measure/clocks.py`") == ["attic/", "measure/clocks.py"]


def first_line(file: Path) -> str:
    """What the file says that it is; empty where it says nothing."""
    return (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]


@pytest.mark.slow
def test_every_file_says_what_it_is() -> None:
    files = [file for file in SOURCES.rglob("*.py") if file.stat().st_size > 0]
    assert [str(file.relative_to(SOURCES)) for file in files if len(first_line(file)) < 15] == []


def test_a_file_that_says_nothing_is_seen(tmp_path: Path) -> None:
    (tmp_path / "silent.py").write_text("x = 1\n")
    assert first_line(tmp_path / "silent.py") == ""


# ---------------------------------------------------------------- examples in the pages


BLOCKS = [
    pytest.param(code, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, code in enumerate(TESTED.findall(page.read_text()))
]


def test_pages_have_examples_that_are_run() -> None:
    assert len(BLOCKS) >= 2


@pytest.mark.slow
@pytest.mark.usefixtures("forked_commands")
@pytest.mark.parametrize("code", BLOCKS)
def test_an_example_in_a_page_runs(code: str, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(code)
    done = run([sys.executable, "example.py"], tmp_path)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- the example operator


def files_of_the_example(text: str) -> dict[str, str]:
    return dict(FILE.findall(text))


OPERATOR = (ROOT / "docs" / "extend" / "adding_an_operator.md").read_text()
EXAMPLE = files_of_the_example(OPERATOR)


def other_than_in_the_package(files: dict[str, str]) -> list[str]:
    """Those of the files that read otherwise in the package."""
    return [name for name, code in files.items() if (SOURCES / name).read_text() != code]


def test_the_example_operator_is_that_of_the_package() -> None:
    assert len(EXAMPLE) == 3
    assert other_than_in_the_package(EXAMPLE) == []


def test_the_examples_of_the_example_operator_are_those_of_the_tests() -> None:
    examples = dict(TEST.findall(OPERATOR))
    [name] = examples
    assert Path(name).stem == "leaky_relu"
    assert examples[name] == (TESTS / name).read_text()


def test_an_example_that_differs_is_seen() -> None:
    changed = files_of_the_example(OPERATOR.replace("slope, 0.0", "slope, 1.0"))
    assert other_than_in_the_package(changed) == [name for name in EXAMPLE if "onednn" in name]


LEAKY = """
import sys
import torch
from torch import nn
import golow
from golow.levels.direct.onednn import level as onednn
from golow.levels.direct.onednn.planning import require_runnable
from golow.records.errors import Unsupported
from support.direct.in_process import assert_right

print(golow.__file__)
if not onednn.probe().available:
    sys.exit("oneDNN is not installed")
from support.direct.onednn_in_process import compute, lower

for mode in ("infer", "train"):
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.LeakyReLU(0.1), nn.Flatten(), nn.Linear(8 * 16, 5)
    network = lower(nn.Sequential(*layers), torch.randn(4, 3, 6, 6), mode)
    try:
        require_runnable(network.graph)
    except Unsupported as refused:
        print(mode, refused)
    else:
        assert_right(network, compute(network))
        print(mode, "is right")
"""


@pytest.mark.slow
def test_the_example_operator_runs_and_without_its_files_is_refused(tmp_path: Path) -> None:
    """In a copy of the package: without the files of docs/extend/adding_an_operator.md, with the
    first of them, and with all."""
    package = tmp_path / "golow"
    shutil.copytree(SOURCES, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in EXAMPLE:
        (package / name).unlink()

    def said() -> list[str]:
        found = run([sys.executable, "-c", LEAKY], tmp_path, tmp_path, ROOT / "tests")
        if "oneDNN is not installed" in found.stderr:
            pytest.skip("oneDNN is not installed")
        assert found.returncode == 0, found.stderr
        place, *lines = found.stdout.splitlines()
        assert Path(place) == package / "__init__.py"
        return lines

    def refusals(page: str) -> list[str]:
        return re.findall(r"^onednn does not support this workload: .*", page, re.MULTILINE)

    _, without_algorithm = refusals(OPERATOR)
    assert said() == ["infer is right", "train is right"]  # it is unfolded
    meaning = next(name for name in EXAMPLE if name.startswith("lower/"))
    (package / meaning).write_text(EXAMPLE[meaning])
    assert said() == [f"infer {without_algorithm}", f"train {without_algorithm}"]
    for name, code in EXAMPLE.items():
        (package / name).write_text(code)
    assert said() == ["infer is right", "train is right"]

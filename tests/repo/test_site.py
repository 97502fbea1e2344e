"""The site of the documentation: its pages, its hooks, and what ends `make docs`."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import golow
from support.places import DOCS, ROOT

NAVIGATION = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
GENERATED = {"commands.md", "choices.md"}
# From the top: what a page must open with, and how long it may be.
USER_PAGES = [
    page
    for folder in ("start", "use")
    for page in sorted((DOCS / folder).glob("*.md"))
    if page.name not in GENERATED
]
LONGEST = {
    ROOT / "README.md": 150,
    ROOT / "CHANGELOG.md": 60,
    DOCS / "architecture.md": 80,
    **dict.fromkeys(USER_PAGES, 250),
}
OPENING = re.compile(r"# .+\n\nAfter reading this page,")


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    """docs/site_hooks.py."""
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------- pages


def undocumented(names: list[str], page: str) -> set[str]:
    """Names that the page has no entry for."""
    return set(names) ^ set(re.findall(r"^::: golow\.(\w+)$", page, re.MULTILINE))


def test_every_public_name_is_in_the_reference() -> None:
    page = (DOCS / "use" / "python.md").read_text()
    assert undocumented(golow.__all__, page) == set()
    assert undocumented([*golow.__all__, "planted"], page) == {"planted"}


def test_completion_lists_the_public_names() -> None:
    assert dir(golow) == sorted(golow.__all__)
    assert "__all__" not in dir(golow)


def missing_in(navigation: str) -> set[str]:
    """Pages that the navigation does not list; notes are listed by their own index."""
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    notes = {page for page in pages if page.startswith("notes/")} - {"notes/index.md"}
    return (pages - notes) ^ set(re.findall(r": (\S+\.md)$", navigation, re.MULTILINE))


def test_the_navigation_lists_every_page() -> None:
    assert missing_in(NAVIGATION) == set()
    assert missing_in(NAVIGATION.replace("use/training.md", "use/braining.md")) == {
        "use/training.md",
        "use/braining.md",
    }


def dead_names(text: str) -> list[str]:
    """Pages that the text names and that are not there."""
    return [
        name
        for name in re.findall(r"(?<![\w/])docs/[\w/]+\.md\b", text)
        if not (ROOT / name).exists()
    ]


def test_pages_that_the_code_names_are_there() -> None:
    files = [
        file
        for folder in ("src", "tests", "benchmarks", "examples")
        for kind in ("py", "cpp", "h", "c")
        for file in (ROOT / folder).rglob(f"*.{kind}")
        if file != Path(__file__)
    ]
    named = {str(file.relative_to(ROOT)): dead_names(file.read_text()) for file in files}
    assert {file: names for file, names in named.items() if names} == {}
    assert dead_names("see docs/planted.md and docs/architecture.md") == ["docs/planted.md"]


@pytest.mark.parametrize("page", LONGEST, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_short_enough(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= LONGEST[page]


@pytest.mark.parametrize("page", USER_PAGES, ids=lambda page: page.name)
def test_a_page_opens_with_what_the_reader_can_do_after_it(page: Path) -> None:
    assert OPENING.match(page.read_text())


def test_another_opening_is_seen() -> None:
    assert not OPENING.match("# A page\n\nThis page shows what is on it.\n")


# ---------------------------------------------------------------- hooks


def shown(hooks: ModuleType, text: str) -> str:
    """The text of a page in docs/use as the site has it."""
    file = SimpleNamespace(abs_src_path=str(DOCS / "use" / "page.md"), src_path="use/page.md")
    config = SimpleNamespace(docs_dir=str(DOCS))
    found = hooks.on_page_markdown(text, page=SimpleNamespace(file=file), config=config, files=None)
    assert isinstance(found, str)
    return found


def test_links_out_of_the_pages_become_text(
    hooks: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    assert shown(hooks, "[`rule.py`](../../src/golow/check/rule.py)!") == "`rule.py`!"
    named = "the rule in `src/golow/check/rule.py`!"
    assert shown(hooks, "[the rule](../../src/golow/check/rule.py)!") == named
    inside = "[a](../understand/correctness.md#the-rule) [b](compare.md) ![c](../../x.png)"
    assert shown(hooks, inside) == inside
    assert caplog.records == []
    missing = "[a rule](../../src/golow/check/planted.py)"
    assert shown(hooks, missing) == "a rule in `src/golow/check/planted.py`"
    [record] = caplog.records
    assert record.levelno == logging.WARNING and "planted.py" in record.getMessage()


@pytest.mark.parametrize(
    ("html", "address"),
    [
        ('<script src="https://cdn.example/x.js"></script>', "https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', "//fonts.example/a.css"),
        ("<img alt=x src=http://example/x.png>", "http://example/x.png"),
        ('<a href="https://example.org">x</a><img src="figures/a.svg">', None),
    ],
)
def test_what_a_page_loads_from_the_network_is_seen(
    hooks: ModuleType, html: str, address: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_path="use/page.md"))
    assert hooks.on_post_page(html, page=page, config=None) == html
    said = [record.getMessage() for record in caplog.records]
    assert said == ([] if address is None else [f"use/page.md loads {address} from the network"])


# ---------------------------------------------------------------- make docs


def built(place: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of the checkout in that folder as `make docs` does."""
    printed = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "docs"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    words = shlex.split(printed.stdout.splitlines()[-1])
    program = next(n for n, word in enumerate(words) if word.endswith("/mkdocs"))
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", *words[program + 1 :]],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )


@pytest.mark.slow
def test_the_site_is_built_and_what_is_broken_ends_the_build(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed; pip install 'golow[docs]'")
    for name in ("docs", "src", "tests", "examples", "benchmarks"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    for file in (ROOT / "mkdocs.yml", *ROOT.glob("*.md")):
        shutil.copy(file, tmp_path)
    page = tmp_path / "docs" / "results" / "index.md"
    page.write_text(
        f"{page.read_text()}\n[a](nowhere.md) [b](cpu.md#nowhere) [c](../../nowhere.py)\n"
    )
    broken = built(tmp_path)
    assert broken.returncode != 0
    planted = ("'nowhere.md'", "'#nowhere'", "../../nowhere.py")
    warnings = [line for line in broken.stderr.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == len(planted), broken.stderr  # all other pages are whole
    for link in planted:
        assert any(link in line for line in warnings), broken.stderr
    assert (tmp_path / "site" / "results" / "networks.html").exists()

"""The quickstart shows what the program prints: its listings, commands and options are the
program's."""

from __future__ import annotations

import importlib.util
import io
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from golow.api import support
from golow.levels.ladder import LADDER
from golow.report.comparison.support import render
from golow.report.console import WIDTH, PlainConsole
from support.command import golow
from support.pages.page_commands import commands, unknown
from support.places import ROOT

QUICKSTART = ROOT / "docs" / "start" / "quickstart.md"
COMPARE = ROOT / "docs" / "use" / "compare.md"  # two pages with listings
# The reference is made from the program, and the protocol has a worker's own lines.
EVERY_PAGE = sorted(
    {ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")}
    - {ROOT / "docs" / "use" / "commands.md", ROOT / "docs" / "extend" / "protocol.md"}
)


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """docs/generate_quickstart.py."""
    place = ROOT / "docs" / "generate_quickstart.py"
    spec = importlib.util.spec_from_file_location("generate_quickstart", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_listings_are_what_the_program_shows(generator: ModuleType) -> None:
    assert generator.PAGES == (QUICKSTART, COMPARE)
    texts = [page.read_text() for page in generator.PAGES]
    shown = [name for text in texts for _, name, _ in generator.LISTING.findall(text)]
    assert sorted(shown) == sorted([*generator.RECORDS, *generator.TEXTS])
    assert [generator.page(text) for text in texts] == texts, "python docs/generate_quickstart.py"


def test_a_listing_of_an_earlier_program_is_seen(generator: ModuleType) -> None:
    text = QUICKSTART.read_text()
    for now, before in (("over eager", "ratio"), ("stage ", "pass ")):
        assert before not in text or now in text
        assert generator.page(text.replace(now, before)) != text.replace(now, before)


# ---------------------------------------------------------------- what is stored as text


def form(text: str) -> list[str]:
    """The lines without numbers, units of time and the widths of columns."""
    masked = re.sub(r"\b\d[\d.,]*(?: (?:us|ms|s))?\b", "#", text)
    return [" ".join(line.split()) for line in masked.splitlines()]


@pytest.mark.parametrize("name", ["lower", "emit"])
def test_a_stored_text_has_the_form_that_is_printed_now(
    generator: ModuleType, name: str, tmp_path: Path
) -> None:
    ended = golow(*generator.TEXTS[name].split()[1:], folder=tmp_path)
    assert ended.status == 0, ended.error
    stored = (generator.STORED / f"{name}.txt").read_text()
    assert form(stored) == form(ended.output), "python docs/generate_quickstart.py --run"
    assert form(stored) != form(stored.replace("capture", "trace").replace(".cpp", ".cc"))


def test_the_levels_that_have_an_operation_are_those_of_now(
    generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the table: which libraries are missing depends on the machine."""
    shutil.copy(generator.MODEL, tmp_path)
    monkeypatch.chdir(tmp_path)
    found = support("./mynet.py:Net", input_shape=(3, 8, 8), quiet=True)
    output = io.StringIO()
    render(found.support, PlainConsole(file=output, width=WIDTH, markup=False))
    [stored, now] = [
        text.partition("\n\n")[0]
        for text in (
            (generator.STORED / "support.txt").read_text(),
            generator.tidy(output.getvalue()),
        )
    ]
    assert "is not implemented" in stored
    assert stored == now, "python docs/generate_quickstart.py --run"


def test_the_doctor_says_the_same_things(generator: ModuleType, tmp_path: Path) -> None:
    def labels(text: str) -> set[str]:
        return set(re.findall(r"^[A-Za-z ]+(?=:)", text, re.MULTILINE))

    stored = (generator.STORED / "doctor.txt").read_text()
    assert labels(stored) == labels(golow("doctor", folder=tmp_path).output)
    levels = re.findall(r"^(\w+) +(?:yes|no)\b", stored, re.MULTILINE)
    assert len(levels) > 5
    assert levels == [level.name for level in LADDER if level.name in levels]


# ---------------------------------------------------------------- commands and options


@pytest.mark.parametrize("page", [QUICKSTART, COMPARE, ROOT / "README.md"], ids=lambda p: p.name)
def test_the_pages_have_commands(page: Path) -> None:
    assert len(list(commands(page.read_text()))) > 6


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: page.name)
def test_commands_and_options_of_the_page_exist(page: Path) -> None:
    found = list(commands(page.read_text()))
    assert {" ".join(words): unknown(words) for words in found if unknown(words)} == {}


def test_what_does_not_exist_is_seen() -> None:
    assert unknown(["golow", "compile", "lenet5"]) == ["compile"]
    assert unknown(["golow", "compare", "lenet5", "--level", "eager"]) == ["--level"]
    assert unknown(["golow", "study", "begin"]) == ["begin"]
    assert unknown(["golow", "study", "run", "small", "--out", "x", "--jsn"]) == ["--jsn"]

"""The report page as it is seen: one title, subtitles where the subject changes, nothing clipped on
a common screen, cards on a phone, and axes whose numbers have one style."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from golow.programs.auditing import store as audit_store
from golow.programs.comparison import store
from golow.report.html_report import write_report
from golow.report.page import audit, blocks, comparison, life, load, profile, study, training
from golow.report.page.file import write_page
from golow.report.published import levental2020_grid
from golow.report.study.rows import rows_of
from golow.report.style import LEVELS, VARIANTS, look
from support.pages.browser import Browser
from support.pages.pages import COMPARED, RUNS, in_a_browser, in_page, violations
from support.records import audits, lives, load_tests
from support.records.drawn_studies import levental_like
from support.records.drawn_trainings import TWO_SEEDS
from support.records.profiles import gpu_profiles

WIDTHS = (400, 800, 1280, 1920)
NAMES = ("eager", "eager:channels_last", "compile:freezing-cudagraphs", "compile:max-autotune")


def ladder_of(names: Sequence[str]) -> list[Any]:
    """The sections of a comparison of these levels."""
    runs = tuple(msgspec.structs.replace(RUNS[1], level=name) for name in names)
    return comparison.sections(msgspec.structs.replace(COMPARED, runs=runs), "r0")


KINDS: dict[str, Callable[[], list[Any]]] = {
    "comparison": lambda: ladder_of(NAMES),
    "life": lambda: life.sections(lives.whole(), "r0"),
    "audit": lambda: audit.sections(audits.EVERYTHING, "r0"),
    "load": lambda: load.sections(load_tests.everything(), "r0"),
    "training": lambda: training.sections(TWO_SEEDS, "r0"),
    "profile": lambda: profile.sections(gpu_profiles(), "r0"),
    "study": lambda: study.sections(rows_of("one", levental_like()), "r0", levental2020_grid()),
}


# ---------------------------------------------------------------- titles


def test_records_of_one_subject_have_one_title_and_no_subtitles(tmp_path: Path) -> None:
    compared = msgspec.structs.replace(COMPARED, workload=audits.EVERYTHING.workload)
    places = [store.save(compared, tmp_path), audit_store.save(audits.EVERYTHING, tmp_path)]
    page = write_report(places, tmp_path / "page.html")
    view = in_page(page, "golow-view")
    assert view["title"] == compared.workload.model
    assert view["about"].startswith("inference, ")
    assert view["kinds"] == "comparison, audit"
    assert not any("of" in section for section in view["sections"])
    assert page.read_text().count("<h1") == 1


def test_a_subtitle_stands_where_the_subject_changes(tmp_path: Path) -> None:
    other = msgspec.structs.replace(COMPARED.workload, model="other")
    found = [
        store.save(COMPARED, tmp_path / "a"),
        store.save(msgspec.structs.replace(COMPARED, workload=other), tmp_path / "b"),
    ]
    view = in_page(write_report(found, tmp_path / "page.html"), "golow-view")
    said = {section["id"]: section["of"] for section in view["sections"] if "of" in section}
    assert list(said) == ["r0-answer", "r1-answer"]
    assert said["r1-answer"].startswith("other, inference")
    assert view["about"] == "2 records"


def test_records_of_the_same_workload_are_told_apart_by_their_names(tmp_path: Path) -> None:
    found = [store.save(COMPARED, tmp_path / name) for name in "ab"]
    renamed = [place.rename(place.with_name(f"record-{n}")) for n, place in enumerate(found)]
    view = in_page(write_report(renamed, tmp_path / "page.html"), "golow-view")
    said = [section["of"] for section in view["sections"] if "of" in section]
    assert [text.rpartition(", ")[2] for text in said] == ["record-0", "record-1"]


# ---------------------------------------------------------------- colours


def test_each_variant_of_a_level_has_another_shade() -> None:
    for level in LEVELS:
        shades = [look(level).colour, *(look(f"{level}:{name}").colour for name in VARIANTS)]
        assert len({shades[0], shades[1]}) == 2
        assert shades[0] not in shades[1:]
        assert all(len(shade) == 7 and int(shade[1:], 16) >= 0 for shade in shades)
    compiled = ("freezing", "max-autotune", "cudagraphs", "freezing-cudagraphs")
    assert len({look(f"compile:{name}").colour for name in compiled}) == len(compiled)


def test_what_is_too_dark_for_a_dark_page_is_paler_there() -> None:
    assert blocks.level_colour("tensorrt").startswith("light-dark(#000077, ")
    assert blocks.level_colour("libtorch") == "#0072B2"
    assert blocks.level_colour("eager") == "currentColor"


# ---------------------------------------------------------------- in a browser


def screen(window: Browser, width: int) -> None:
    window.tell(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=900,
        deviceScaleFactor=1,
        mobile=width < 600,
    )


CLIPPED = (
    "return [...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth >"
    " one.clientWidth).map(one => one.getAttribute('aria-label'))"
)


@pytest.mark.slow
@in_a_browser
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_clipped_on_a_common_screen(kind: str, window: Browser, tmp_path: Path) -> None:
    page = write_page("resnet50, inference", KINDS[kind](), {}, tmp_path / "page.html")
    for width in WIDTHS:
        screen(window, width)
        window.open(page)
        assert window.run("return document.documentElement.scrollWidth") <= width
        if width >= 1280:
            assert window.run(CLIPPED) == []
    window.tell("Emulation.clearDeviceMetricsOverride")


@in_a_browser
def test_on_a_phone_the_ladder_is_cards_with_time_and_ratio_first(
    window: Browser, tmp_path: Path
) -> None:
    screen(window, 400)
    window.open(write_page("resnet50, inference", KINDS["comparison"](), {}, tmp_path / "p.html"))
    ladder = "#r0-ladder .cards"
    assert window.run(f"return document.querySelectorAll('{ladder} tbody tr').length") == len(NAMES)
    texts = window.run(
        f"const cells = [...document.querySelector('{ladder} tbody tr').cells];"
        "const at = one => one.getBoundingClientRect();"
        "return cells.filter(one => at(one).height)"
        ".sort((a, b) => at(a).y - at(b).y || at(a).x - at(b).x).map(one =>"
        " one.dataset.title || 'level')"
    )
    assert texts[:4] == ["level", "check", "time", "time over eager"]
    right = window.run(
        f"return Math.max(...[...document.querySelectorAll('{ladder} td')]"
        ".map(one => one.getBoundingClientRect().right))"
    )
    assert right <= 400
    assert violations(window) == []
    window.tell("Emulation.clearDeviceMetricsOverride")


@in_a_browser
@pytest.mark.parametrize(
    ("ticks", "texts"),
    [
        ([0, 0.5, 1, 1.5], ["0", "0.5", "1.0", "1.5"]),
        ([0, 500, 1000, 1500], ["0", "500", "1,000", "1,500"]),
        ([0, 5000, 10000, 15000], ["0", "5k", "10k", "15k"]),
        ([1, 10, 100, 1000, 10000, 1e6], ["1", "10", "100", "1,000", "10k", "1M"]),
        ([8, 16, 32, 1024], ["8", "16", "32", "1,024"]),
        ([2e10, 5e10, 1e11], ["20G", "50G", "100G"]),
        ([0, 2.5e6, 5e6], ["0", "2.5M", "5.0M"]),
        ([0.7, 0.75, 0.8], ["0.70", "0.75", "0.80"]),
        ([1e-5, 1e-4], ["1e-5", "1e-4"]),
        ([3], ["3"]),
        ([], []),
    ],
)
def test_numbers_on_axes_have_one_style(
    ticks: list[float], texts: list[str], window: Browser, tmp_path: Path
) -> None:
    window.open(write_page("axes", [], {}, tmp_path / "page.html"))
    assert window.run("return tickTexts(arguments[0])", ticks) == texts

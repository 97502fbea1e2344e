"""A study's page in a browser: what a click, a drag or a choice shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from golow.report.page import study
from golow.report.page.file import write_page
from golow.report.published import levental2020_grid
from support.pages.browser import Browser
from support.pages.pages import EVIL, in_a_browser, violations
from support.records.overtaken import ROWS


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sections = study.sections(ROWS, "r0", levental2020_grid())
    return write_page(EVIL, sections, {}, tmp_path_factory.mktemp("study") / "page.html")


@pytest.mark.slow
@in_a_browser
def test_a_click_on_a_cell_opens_its_comparison(window: Browser, page: Path) -> None:
    window.open(page)
    opened = "return [...document.querySelectorAll('.details')].map(one => one.textContent)"
    for section in ("#r0-0-fastest", "#r0-0-ratio"):
        window.run(f"document.querySelectorAll('{section} .cell')[7].click()")
        [text] = window.run(opened)
        assert "batch 128, resolution 32 (infer): eager is fastest here." in text
        assert window.run("return document.activeElement.getAttribute('aria-expanded')") == "true"
        assert violations(window) == []
        window.run("document.activeElement.click()")
        assert window.run(opened) == []
    assert not window.run("return window.hacked || document.images.length")
    assert window.log() == []


@pytest.mark.slow
@in_a_browser
def test_a_surface_turns_by_dragging_and_by_the_arrow_keys(window: Browser, page: Path) -> None:
    window.open(page)
    shape = "return document.querySelector('.scene path[fill-opacity]').getAttribute('d')"
    seen = [window.run(shape)]
    window.run("document.querySelector('.scene').focus()")
    for key in ("ArrowLeft", "ArrowUp"):
        window.press(key)
        seen.append(window.run(shape))
    window.point(".scene")
    x, y = window.run(
        "const at = document.querySelector('.scene').getBoundingClientRect();"
        "return [at.x + at.width / 2, at.y + at.height / 2]"
    )
    held = {"button": "left", "buttons": 1}
    window.tell("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, clickCount=1, **held)
    window.tell("Input.dispatchMouseEvent", type="mouseMoved", x=x + 60, y=y, **held)
    window.tell("Input.dispatchMouseEvent", type="mouseReleased", x=x + 60, y=y, button="left")
    seen.append(window.run(shape))
    assert len(set(seen)) == 4
    assert violations(window) == []
    assert window.log() == []


@in_a_browser
def test_a_choice_shows_another_cut(window: Browser, page: Path) -> None:
    window.open(page)
    title = "return document.querySelector('#r0-0-cuts .choice figcaption').textContent"
    before = window.run(title)
    window.run(
        "const one = document.querySelector('#r0-0-cuts select'); one.value = 2;"
        "one.dispatchEvent(new Event('change'))"
    )
    assert (before, window.run(title)) == (
        "time per sample by resolution, batch 32",
        "time per sample by resolution, batch 128",
    )


@pytest.mark.slow
@in_a_browser
def test_a_reader_chooses_a_measure_and_opens_a_cell(window: Browser, page: Path) -> None:
    window.open(page)
    captions = (
        "return [...document.querySelectorAll('#r0-0-measures .tabled:has(.map) .caption')]"
        ".map(one => one.textContent)"
    )
    assert window.run(captions)[0] == "eager: time per sample (infer)"
    window.run(
        "const one = document.querySelector('#r0-0-measures select');"
        "one.value = [...one.options].find(o => o.text === 'energy per sample').value;"
        "one.dispatchEvent(new Event('change'))"
    )
    assert window.run(captions) == [
        f"{level}: energy per sample (infer)" for level in ("eager", EVIL)
    ]
    window.run("document.querySelectorAll('#r0-0-measures .cell')[7].click()")
    opened = "return document.querySelector('#r0-0-measures .details').textContent"
    assert "batch 128, resolution 32 (infer): eager is fastest here." in window.run(opened)
    for dark in ("light", "dark"):
        window.tell(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": dark}]
        )
        assert violations(window) == []
    window.tell("Emulation.setEmulatedMedia", features=[])
    assert not window.run("return window.hacked || document.images.length")
    assert window.log() == []

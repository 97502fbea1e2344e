"""A training in the page: its curves over every axis are those of the record, levels and seeds can
be switched, and verdicts have their figures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from golow.programs.training.training_record import CurveVerdict, Mistake, Mistakes, Training
from golow.records.comparison import Quantity
from golow.report.console import visible
from golow.report.page import training
from golow.report.page.file import write_page
from golow.report.training import series
from support.examples import examples
from support.pages.browser import Browser
from support.pages.pages import EVIL, in_a_browser, violations
from support.records.drawn_trainings import TWO_SEEDS, epoch, paper_like, run, trainings
from support.records.drawn_trainings import training as training_of

FIGURES = (
    Quantity(name="accuracy_difference", unit="", value=0.0123, low=-0.01, high=0.03),
    Quantity(name="accuracy_tolerance", unit="", value=0.05),
)
HOSTILE = training_of(
    [run(name, [epoch(1), epoch(2)], seed) for name in ("eager", EVIL) for seed in (0, 1)],
    verdicts=[
        CurveVerdict(level=EVIL, initialisation=EVIL, word="unclear", reason=EVIL, figures=FIGURES)
    ],
    classes=(EVIL, "b", "c"),
)


def of_kind(found: Training, section: str, kind: str) -> list[Any]:
    blocks = {one["id"]: one["blocks"] for one in training.sections(found, "r0")}[section]
    beside = [part for one in blocks if one["kind"] == "beside" for part in one["blocks"]]
    return [one for one in [*blocks, *beside] if one["kind"] == kind]


def test_curves_stand_over_epochs_samples_time_and_energy() -> None:
    accuracy, loss = of_kind(TWO_SEEDS, "r0-curves", "curves")
    assert accuracy["axes"][:2] == ["epoch", "samples seen"]
    assert accuracy["axes"][2:] == ["seconds of training", "joules of the device"]
    mean, first, second = accuracy["lines"]
    assert [line["group"] for line in (mean, first, second)] == [training.MEAN, "seed 0", "seed 1"]
    assert accuracy["shown"] == [training.MEAN]
    assert mean["values"][:2] == pytest.approx([0.55, 0.8])
    assert (mean["low"][0], mean["high"][0]) == (0.5, 0.6)
    epochs, samples, seconds, joules = mean["places"]
    assert epochs == [1, 2, 3]
    assert samples == [60_000, 120_000, 180_000]
    assert seconds == [15, 35, 43]  # means over the seeds that got so far
    assert joules == [1000, 3000, 6000]
    assert second["values"][:2] == [0.6, 0.9]
    assert math.isnan(second["values"][2])
    assert loss["lines"][0]["places"][0][0] < 1  # within the first epoch


def test_without_energy_there_is_no_such_axis() -> None:
    plain = msgspec.structs.replace(epoch(1), device=())
    [accuracy, _] = of_kind(training_of([run("eager", [plain])]), "r0-curves", "curves")
    assert accuracy["axes"] == ["epoch", "samples seen", "seconds of training"]
    assert [line["group"] for line in accuracy["lines"]] == [""]


def test_energy_ends_where_an_epoch_has_none() -> None:
    plain = msgspec.structs.replace(epoch(2), device=())
    band = series.accuracy(training_of([run("eager", [epoch(1), plain])]), "eager", "default")
    assert band.joules[0] == 1000
    assert math.isnan(band.joules[1])


@pytest.mark.slow
@examples(40)
@given(trainings())
def test_any_training_has_a_page(found: Training) -> None:
    for block in of_kind(found, "r0-curves", "curves"):
        for line in block["lines"]:
            lengths = {len(line[name]) for name in ("values", "low", "high")}
            assert {*lengths, *map(len, line["places"])} == {len(line["values"])}
            assert len(line["places"]) == len(block["axes"])


def test_a_verdict_has_its_figures() -> None:
    [verdicts, _] = of_kind(HOSTILE, "r0-answer", "table")
    titles = [one["title"] for one in verdicts["columns"]]
    assert titles == ["level", "same network", "accuracy difference", "accuracy tolerance", "why"]
    [row] = verdicts["rows"]
    assert row[2]["text"] == "0.0123\n-0.01 to 0.03"
    assert (row[1]["word"], row[3]["order"]) == ("unclear", 0.05)


def test_many_classes_are_shown_by_what_is_confused_most() -> None:
    classes = tuple(f"class {n}" for n in range(30))
    matrix = tuple(
        tuple(9 if a == b else a if b == a - 1 else 0 for b in range(30)) for a in range(30)
    )
    found = training_of([run("eager", [epoch(1, confusion=matrix)])], classes=classes)
    [beside] = of_kind(found, "r0-confusion", "beside")
    [table] = beside["blocks"]
    assert [cell["text"] for cell in table["rows"][0]] == ["class 29", "class 28", "29", "76%"]


def picture(channels: int, pixels: bytes, truth: int = 0) -> Mistake:
    shape = (channels, 1, 2)
    return Mistake(sample=7, truth=truth, predicted=1, probability=0.93, shape=shape, pixels=pixels)


GREY, COLOURED = picture(1, b"\x00\xff"), picture(3, bytes(range(6)), truth=2)


def with_mistakes(found: Training, *pictures: Mistake) -> Training:
    wrong = Mistakes(epoch=2, count=1234, pictures=pictures)
    runs = [msgspec.structs.replace(one, mistakes=wrong) for one in found.runs]
    return msgspec.structs.replace(found, runs=tuple(runs))


def test_pictures_that_a_level_got_wrong_are_shown() -> None:
    damaged = picture(3, b"\x00")
    [choice] = of_kind(with_mistakes(HOSTILE, GREY, damaged, COLOURED), "r0-mistakes", "choice")
    shown = choice["options"][0]["block"]
    assert shown["title"] == (
        "eager, seed 0, epoch 2: 1,234 of the test samples taken for another class; "
        "the 3 with the highest confidence"
    )
    texts = [one["text"] for one in shown["pictures"]]
    assert texts == [
        f"{visible(EVIL)}\ntaken for b, 93%\nsample 7",
        "c\ntaken for b, 93%\nsample 7",
    ]
    assert of_kind(HOSTILE, "r0-mistakes", "choice") == []


# ---------------------------------------------------------------- in a browser


@pytest.mark.slow
@in_a_browser
def test_pictures_have_the_pixels_of_the_record(window: Browser, tmp_path: Path) -> None:
    sections = training.sections(with_mistakes(HOSTILE, GREY, COLOURED), "r0")
    window.open(write_page(EVIL, sections, {}, tmp_path / "page.html"))
    drawn = window.run(
        "return [...document.querySelectorAll('#r0-mistakes canvas')].map(one => "
        "[...one.getContext('2d').getImageData(0, 0, one.width, one.height).data])"
    )
    assert drawn == [[0, 0, 0, 255, 255, 255, 255, 255], [0, 2, 4, 255, 1, 3, 5, 255]]
    assert violations(window) == []
    assert not window.run("return window.hacked || document.images.length")
    assert window.log() == []


@pytest.mark.slow
@in_a_browser
def test_levels_seeds_and_axes_are_chosen(window: Browser, tmp_path: Path) -> None:
    window.open(write_page(EVIL, training.sections(HOSTILE, "r0"), {}, tmp_path / "page.html"))
    chart = "const one = document.querySelector('#r0-curves figure');"
    lines = f"{chart} return one.querySelectorAll('svg path[stroke-width]').length"
    label = f"{chart} return one.querySelector('svg').textContent"
    assert window.run(lines) == 2  # the means
    press = f"{chart} one.querySelectorAll('.legend button')[arguments[0]].click()"
    window.run(press, 3)  # seed 0, of both levels
    assert window.run(lines) == 4
    window.run(press, 0)  # eager
    assert window.run(lines) == 2
    assert "joules" not in window.run(label)
    window.run(
        f"{chart} const axis = one.querySelector('select'); axis.value = 3;"
        "axis.dispatchEvent(new Event('change'))"
    )
    assert "joules of the device" in window.run(label)
    assert violations(window) == []
    assert not window.run("return window.hacked || document.images.length")
    assert window.log() == []


@pytest.mark.slow
@in_a_browser
def test_a_long_training_is_there_at_once(window: Browser, tmp_path: Path) -> None:
    found = paper_like(initialisations=("default", "xavier"), epochs=30)
    sections = training.sections(found, "r0")
    assert window.open(write_page("x", sections, {}, tmp_path / "page.html")) < 2

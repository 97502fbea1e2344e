"""Figures of a training, whatever its record: nothing is cut, and nothing covers anything else."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from matplotlib.figure import Figure

from golow.programs.training.training_record import Training, TrainingRun
from golow.report import style
from golow.report.training import curves
from golow.report.training.bars import time_per_sample
from golow.report.training.confusion import confusion
from support.examples import examples
from support.pages.figure_checks import defects
from support.records.drawn_trainings import epoch, paper_like, run, training, trainings

FIGURES: dict[str, Callable[[Training], Figure]] = {
    "accuracy_over_epochs": curves.accuracy_over_epochs,
    "accuracy_over_time": curves.accuracy_over_time,
    "loss_over_epochs": curves.loss_over_epochs,
    "loss_over_time": curves.loss_over_time,
    "time_per_sample": time_per_sample,
    "overview": curves.overview,
    "confusion": lambda shown: confusion(shown, shown.plan.levels[0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_nothing_is_cut_or_covered(name: str) -> None:
    many = [f"compile:{variant}" for variant in style.VARIANTS]
    shown = [
        paper_like(),
        paper_like(["eager", *many], ["default", "kaiming", "zero_gamma"], 1, 3, 2, "voc2012"),
    ]
    for each in shown:
        assert defects(FIGURES[name](each)) == []


def of_two(first: float, second: float | None) -> Training:
    """Two initialisations of so many seconds an epoch; None for one of which nothing is there."""
    seconds = {"one": first, "two": second}

    def lasting(run: TrainingRun) -> TrainingRun:
        each = seconds[run.initialisation]
        if each is None:
            return msgspec.structs.replace(run, epochs=())
        done = [msgspec.structs.replace(epoch, train_seconds=each) for epoch in run.epochs]
        return msgspec.structs.replace(run, epochs=tuple(done))

    made = paper_like(["eager"], list(seconds), 1, 3, 2)
    return msgspec.structs.replace(made, runs=tuple(map(lasting, made.runs)))


@pytest.mark.parametrize("name", ["accuracy_over_time", "loss_over_time"])
def test_the_longest_curve_is_seen_whole(name: str) -> None:
    assert defects(FIGURES[name](of_two(8.0, 24.0))) == []


@pytest.mark.parametrize("name", ["accuracy_over_time", "loss_over_epochs"])
def test_an_empty_panel_takes_no_ticks_from_the_others(name: str) -> None:
    figure = FIGURES[name](of_two(8.0, None))
    figure.draw_without_rendering()
    full, empty = figure.axes
    assert [text.get_text() for text in empty.texts][:1] == ["nothing was recorded"]
    assert len(full.get_xticks()) > 1
    assert len(full.get_yticks()) > 1


def test_the_shortest_times_fit() -> None:
    """Less than a nanosecond per sample, behind the bars of a level with a long name."""

    def fleeting(of: TrainingRun) -> TrainingRun:
        seconds = 5e-5 * (1 + of.seed)
        done = [
            msgspec.structs.replace(one, train_seconds=seconds, eval_seconds=seconds / 16)
            for one in of.epochs
        ]
        return msgspec.structs.replace(of, epochs=tuple(done))

    made = paper_like(["compile:freezing-cudagraphs"], ["default"], 2, 2, 2)
    shown = msgspec.structs.replace(made, runs=tuple(map(fleeting, made.runs)))
    assert defects(time_per_sample(shown)) == []


@pytest.mark.slow
@examples(6, suppress_health_check=list(HealthCheck))
@given(trainings())
def test_no_record_is_too_odd_for_a_figure(shown: Training) -> None:
    for make in FIGURES.values():
        assert defects(make(shown)) == []


@pytest.mark.slow
@pytest.mark.parametrize("classes", [1, 20, 60, 200])
def test_a_matrix_of_any_number_of_classes_fits(classes: int) -> None:
    matrix = tuple(map(tuple, np.eye(classes, dtype=int) * 12_345))
    names = tuple(f"class with a long name {number}" for number in range(classes))
    shown = training([run("eager", [epoch(1, confusion=matrix)])], classes=names)
    figure = confusion(shown, "eager")
    assert defects(figure) == []
    assert len(figure.axes[0].texts) == (classes if classes <= 20 else 0)


def test_a_legend_over_data_and_a_cut_label_are_seen() -> None:
    figure = curves.loss_over_epochs(paper_like(epochs=2, steps=3))
    figure.axes[0].plot([0, 1], [1, 1], label="planted")
    figure.axes[0].legend(loc="center")
    assert any("panel 0 covers legend" in found for found in defects(figure))

    figure = curves.loss_over_epochs(paper_like(epochs=2, steps=3))
    figure.text(0.9, 0.5, "a label that is much too long for its place")
    assert any("is drawn on a page" in found for found in defects(figure))

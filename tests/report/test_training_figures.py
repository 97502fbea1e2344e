"""Figures of a training: they show what the record says, and look alike."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from golow.programs.training.training_record import CurveVerdict
from golow.records.errors import GolowError
from golow.report import style
from golow.report.training import curves, series
from golow.report.training.bars import time_per_sample
from golow.report.training.confusion import confusion
from support.pages.figure_checks import described, said
from support.places import ROOT
from support.records.drawn_trainings import TWO_SEEDS, epoch, paper_like, run, training

# ---------------------------------------------------------------- what is shown was recorded


def drawn(figure: Figure, level: str) -> tuple[np.ndarray, np.ndarray]:
    """x and y of the level's line in the first panel."""
    [line] = [
        line
        for line in figure.axes[0].lines
        if line.get_color() == style.look(level).colour and len(line.get_xdata()) > 2
    ]
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())


def band(figure: Figure, place: int) -> Bbox:
    """Position of the band of the level at this place of the first panel."""
    return figure.axes[0].collections[place].get_paths()[0].get_extents()


def test_accuracy_is_mean_minimum_and_maximum_over_the_seeds_that_are_there() -> None:
    x, y = drawn(curves.accuracy_over_epochs(TWO_SEEDS), "eager")
    assert x.tolist() == [1, 2, 3]
    assert y == pytest.approx([55, 80, 80])
    shown = band(curves.accuracy_over_epochs(TWO_SEEDS), 0)
    assert (shown.ymin, shown.ymax) == pytest.approx((50, 90))


def test_time_is_that_of_training_alone() -> None:
    x, y = drawn(curves.accuracy_over_time(TWO_SEEDS), "eager")
    assert x == pytest.approx([15, 35, 43])
    assert y == pytest.approx([55, 80, 80])


def test_a_loss_stands_in_the_middle_of_its_steps() -> None:
    x, y = drawn(curves.loss_over_epochs(TWO_SEEDS), "eager")
    assert x == pytest.approx([0.25, 0.75, 1.25, 1.75, 2.25, 2.75])
    assert y == pytest.approx([4, 3, 1.5, 1, 1, 1])
    x, _ = drawn(curves.loss_over_time(TWO_SEEDS), "eager")
    assert x == pytest.approx([3.75, 11.25, 20, 30, 37, 41])


def test_many_steps_are_averaged_and_the_caption_says_how_many() -> None:
    losses = [float(step) for step in range(1000)]
    shown = training([run("eager", [epoch(number, losses) for number in range(1, 11)])])
    figure = curves.loss_over_epochs(shown)
    x, y = drawn(figure, "eager")
    assert len(x) == series.LOSS_POINTS
    assert y[:2] == pytest.approx([np.mean(losses[:50]), np.mean(losses[50:100])])
    assert "Each point is the mean of 50 steps." in described(figure)


def test_a_caption_has_two_lines_and_a_third_for_what_is_missing() -> None:
    figure = curves.loss_over_epochs(TWO_SEEDS)
    first, second = figure.get_supxlabel().split("\n")
    assert first == "resnet50 on folder:pictures: training loss"
    assert second.startswith("NVIDIA H200, driver 570.1; AMD EPYC 9454, 16 threads; torch 2.11.0")
    assert "Lines: mean over seeds; bands: lowest to highest." in described(figure)
    shown = training([run("eager", [epoch(1)]), run("cudnn")])
    *_, third = curves.accuracy_over_epochs(shown).get_supxlabel().split("\n")
    assert third == "Not trained: cudnn (no epoch)."


def test_what_is_not_finite_is_left_out_and_said() -> None:
    shown = training(
        [
            run("eager", [epoch(1, (4, 2)), epoch(2, (math.nan, math.inf)), epoch(3, (2, 1))]),
            run("eager", [epoch(1, (2, 2)), epoch(2, (1, math.nan)), epoch(3, (1, 1))], seed=1),
        ]
    )
    figure = curves.loss_over_epochs(shown)
    _, y = drawn(figure, "eager")
    assert y == pytest.approx([3, 2, 1, math.nan, 1.5, 1], nan_ok=True)
    text = described(figure)
    assert "not finite, not shown: eager seed 0 from epoch 2; eager seed 1" in text


def test_the_caption_says_what_is_missing() -> None:
    shown = training(
        [
            run("eager", [epoch(1)]),
            run("libtorch", [epoch(1)], failure="out of memory"),
            run("cudnn"),
        ],
        verdicts=[
            CurveVerdict(level="libtorch", initialisation="default", word="differs", reason="")
        ],
    )
    text = described(curves.accuracy_over_epochs(shown))
    for part in (
        "resnet50 on mnist: test accuracy",
        "MNIST, IDX files, resized 28x28 -> 32x32, bilinear",
        "Batch 128, SGD, momentum 0.9, weight decay 0, learning rate 0.001 (constant)",
        "precision default, one seed",
        "NVIDIA H200, driver 570.1; AMD EPYC 9454, 16 threads; torch 2.11.0, golow 0.1.0",
        "Not trained: cudnn (no epoch).",
        "Failed: libtorch seed 0 after epoch 1.",
        "Compared with eager's curves: libtorch differs.",
    ):
        assert part in text


def test_a_panel_an_initialisation_and_a_single_epoch_is_a_point_with_its_range() -> None:
    figure = curves.accuracy_over_epochs(
        training(
            [
                run("eager", [epoch(1, accuracy=accuracy)], seed, initialisation)
                for initialisation in ("default", "kaiming")
                for seed, accuracy in enumerate((0.5, 0.6))
            ],
            "digits",
        )
    )
    assert [panel.get_title("left") for panel in figure.axes] == ["default", "kaiming"]
    [_, whisker] = figure.axes[1].collections
    assert whisker.get_paths()[0].get_extents().height == pytest.approx(10)


def test_bars_are_the_median_epoch_of_each_run_and_the_range_of_runs() -> None:
    epochs = [epoch(number, seconds=6 * number) for number in (10, 1, 2)]
    other = [epoch(1, seconds=6 * 4)]
    figure = time_per_sample(training([run("eager", epochs), run("eager", other, seed=1)]))
    left, right = figure.axes
    assert [patch.get_width() for patch in left.patches] == pytest.approx([300])
    assert [text.get_text() for text in left.texts] == ["300 (200-400)"]
    assert left.get_xlabel() == "training: time per sample (us)"
    assert [text.get_text() for text in right.texts] == ["112 (75.0-150)"]


def test_the_confusion_matrix_is_that_of_the_best_epoch() -> None:
    worse, better = ((5, 0, 5), (0, 9, 1), (0, 0, 7)), ((8, 0, 2), (0, 9, 1), (1, 0, 6))
    epochs = [
        epoch(1, accuracy=0.5, confusion=worse),
        epoch(2, accuracy=0.9, confusion=better),
        epoch(3, accuracy=0.9, confusion=worse),
    ]
    figure = confusion(training([run("eager", epochs), run("eager", epochs, 1)]), "eager")
    counts = [int(text.get_text()) for text in figure.axes[0].texts]
    assert counts == [8, 2, 9, 1, 1, 6]
    shares = np.asarray(figure.axes[0].images[0].get_array())
    assert shares.ravel() == pytest.approx([80, 0, 20, 0, 90, 10, 100 / 7, 0, 600 / 7])
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == [
        *("circle", "triangle", "square")
    ]
    assert "confusion matrix of eager, epoch 2, test accuracy 90.00%" in said(figure)
    assert "eager, initialisation default, seed 0" in described(figure)


@pytest.mark.slow
def test_published_accuracies_are_drawn_for_their_data_sets_only() -> None:
    labels = {
        name: [
            text.get_text()
            for text in curves.accuracy_over_time(paper_like(epochs=2, dataset=name)).axes[0].texts
        ]
        for name in ("mnist", "voc2007", "digits")
    }
    assert labels == {
        "mnist": ["LibTorch 98.0", "PyTorch 98.2", "cuDNN 99.1"],
        "voc2007": ["cuDNN 41.1", "LibTorch 43.6", "PyTorch 59.8"],
        "digits": [],
    }
    assert not curves.accuracy_over_time(paper_like(epochs=2), reference=False).axes[0].texts
    shown = curves.accuracy_over_time(paper_like(epochs=2))
    assert "arXiv:2012.07163" in described(shown)


# ---------------------------------------------------------------- colours

# Machado, Oliveira and Fernandes 2009: what linear RGB becomes without one kind of cone.
COLOUR_BLIND = {
    "none": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
         [0.004733, 0.691367, 0.303900]]
    ),
}  # fmt: skip
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(colour: str, eyes: np.ndarray) -> np.ndarray:
    """The colour in CIE L*a*b* as such eyes see it."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = XYZ @ np.clip(eyes @ linear, 0, 1) / XYZ.sum(axis=1)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def nearest(colours: set[str], eyes: np.ndarray) -> float:
    seen = [lab(colour, eyes) for colour in colours]
    return min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2))


@pytest.mark.parametrize("kind", COLOUR_BLIND)
def test_levels_stay_apart_for_every_kind_of_eyes(kind: str) -> None:
    colours = {colour for colour, _ in style.LEVELS.values()} | {style.OTHER_COLOUR}
    assert nearest(colours, COLOUR_BLIND[kind]) > 12


def test_red_and_green_are_seen_to_be_one_colour_for_some() -> None:
    assert nearest({"#CC3311", "#808000"}, COLOUR_BLIND["deutan"]) < 12
    assert nearest({"#CC3311", "#808000"}, COLOUR_BLIND["none"]) > 50


def test_a_level_looks_the_same_whatever_is_beside_it() -> None:
    levels = [*style.LEVELS, *(f"compile:{variant}" for variant in style.VARIANTS)]
    looks = {level: style.look(level) for level in levels}
    looks.pop("onednn")  # the vendor's library, like cudnn, and never on the same hardware
    same = {"channels_last", "freezing", "autotune"}  # of different levels, with one line
    told_apart = [look for level, look in looks.items() if level.partition(":")[2] not in same]
    assert len(set(told_apart)) == len(told_apart)
    assert style.look("mine") == style.look("mine")
    assert style.look("mine").colour == style.OTHER_COLOUR


# ---------------------------------------------------------------- files

SMALL = paper_like(["eager", "cudnn"], seeds=2, epochs=2, steps=3)


@pytest.mark.slow
def test_equal_records_give_equal_files_whatever_the_users_settings(tmp_path: Path) -> None:
    def written(folder: str) -> dict[str, bytes]:
        files = [
            *curves.write_figures(SMALL, tmp_path / folder, ("svg",)),
            *style.save_figure(confusion(SMALL, "cudnn"), tmp_path / folder, "a", ("png", "pdf")),
        ]
        assert set(files) == {*(tmp_path / folder).iterdir()}
        return {file.name: file.read_bytes() for file in files}

    first = written("first")
    assert {"accuracy-over-epochs.svg", "confusion-cudnn.svg", "a.png", "a.pdf"} <= set(first)
    with matplotlib.rc_context({"font.size": 20, "svg.hashsalt": "mine", "svg.fonttype": "none"}):
        before = dict(matplotlib.rcParams)
        assert written("second") == first
        assert dict(matplotlib.rcParams) == before


ANOTHER_PROCESS = """
import sys
from pathlib import Path
from support.records.drawn_trainings import paper_like
from golow.report.training.curves import write_figures
small = paper_like(["eager", "cudnn"], seeds=2, epochs=2, steps=3)
write_figures(small, Path(sys.argv[1]), ("svg",))
assert "matplotlib.pyplot" not in sys.modules
assert "torch" not in sys.modules
"""


@pytest.mark.slow
def test_another_process_writes_the_same_without_pyplot(tmp_path: Path) -> None:
    here = curves.write_figures(SMALL, tmp_path / "here", ("svg",))
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))
    done = subprocess.run(
        [sys.executable, "-c", ANOTHER_PROCESS, str(tmp_path / "there")],
        env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    for file in here:
        assert file.read_bytes() == (tmp_path / "there" / file.name).read_bytes()


@pytest.mark.slow
def test_a_changed_record_changes_its_figure(tmp_path: Path) -> None:
    first = training([run("eager", [epoch(1), epoch(2, accuracy=0.95)])])
    second = training([run("eager", [epoch(1), epoch(2, accuracy=0.96)])])
    for make, changes in ((curves.accuracy_over_time, True), (curves.loss_over_epochs, False)):
        [one], [other] = (
            style.save_figure(make(shown), tmp_path, str(place), ("svg",))
            for place, shown in enumerate((first, second))
        )
        assert (one.read_bytes() != other.read_bytes()) == changes


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(GolowError) as told:
        curves.write_figures(SMALL, Path("nowhere"))
    assert "golow[figures]" in told.value.hint


@pytest.mark.slow
def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(GolowError, match=r"file/accuracy-over-epochs\.svg cannot be written"):
        curves.write_figures(SMALL, tmp_path / "file")
    with pytest.raises(GolowError, match="cannot be written as gif"):
        curves.write_figures(SMALL, tmp_path, ("gif",))  # type: ignore[arg-type]

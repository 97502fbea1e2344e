"""A profile as figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given

from golow.programs.profiling.profile_record import LevelProfile, Profile
from golow.programs.profiling.summary import ROLES
from golow.report.profiling.figures import ROLE_COLOURS, figures, write_figures
from support.examples import examples
from support.pages.figure_checks import defects, said, spilt
from support.records.profiles import PROFILES, gpu_profiles, level, profile

GPU = gpu_profiles()

# ---------------------------------------------------------------- figures

HOSTILE = level(
    "compile:freezing-cudagraphs",
    operators={"=1+1 $x$ \\frac{1}" + "long" * 40: 0.02, "\x1b[31m": 1e-9, "z": 0.0},
    layers={"a." * 60 + "b": 1e-3},
)
SHOWN = {
    "a GPU's": GPU,
    "one level's": (profile([level(operators={"conv": 0.1}, layers={"conv": 0.1})]),),
    "nothing": (profile([]),),
    "no profile": (profile([LevelProfile(level="eager", verdict="failed", reason="it died")]),),
    "hostile names": (profile([HOSTILE]),),
    "many levels": (
        profile(
            [
                level(name, operators={"conv": 0.1}, layers={f"layer{n}": 0.1 for n in range(30)})
                for name in (*"abcdefgh", "compile:freezing-cudagraphs")
            ]
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("kind", ["summary", "layers", "operators"])
def test_nothing_in_a_figure_is_cut_or_covered(kind: str, name: str) -> None:
    figure = figures(SHOWN[name])[kind]
    assert defects(figure) == []
    assert spilt(figure) == []
    assert "net, a training step" in said(figure) or "resnet50" in said(figure)


@pytest.mark.slow
def test_a_bar_is_as_long_as_the_step_without_a_profiler() -> None:
    figure = figures(GPU)["summary"]
    first, second = figure.axes
    for panel, seconds in ((first, (12.0, 7.2, 10.8)), (second, (4.8, 2.88, 4.32))):
        lengths = [
            sum(bar.get_width() for bar in panel.patches if round(bar.get_y() + 0.33) == row)
            for row in range(3)
        ]
        assert lengths == pytest.approx(seconds)
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(ROLES)
    assert len(set(ROLE_COLOURS.values())) == len(ROLES)
    assert "cudnn (failed)" in said(figure)


def test_the_same_layer_is_in_the_same_row_of_every_level() -> None:
    order = {"conv": 0.01, "relu": 0.002, "fc": 0.03}
    shown = profile([level(layers=order), level("libtorch", layers={"fc": 0.02, "conv": 0.005})])
    figure = figures([shown])["layers"]
    left, right = figure.axes
    assert [tick.get_text() for tick in left.get_yticklabels()] == ["conv", "relu", "fc"]
    assert left.get_xlabel() == "time of a layer (ms)"
    assert [text.get_text() for text in left.texts] == ["10.0 ms", "2.00 ms", "30.0 ms"]
    places = {round(text.xy[1]): text.get_text() for text in right.texts}  # type: ignore[attr-defined]
    assert places == {0: "5.00 ms", 2: "20.0 ms"}


@pytest.mark.slow
def test_equal_records_give_equal_files(tmp_path: Path) -> None:
    first = write_figures(GPU, tmp_path / "a", ("svg",))
    second = write_figures(gpu_profiles(), tmp_path / "b", ("svg",))
    assert [file.name for file in first] == ["summary.svg", "layers.svg", "operators.svg"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
@examples(8)
@given(PROFILES)
def test_no_record_is_too_odd_for_a_figure(profiles: Sequence[Profile]) -> None:
    for figure in figures(profiles).values():
        assert defects(figure) == []

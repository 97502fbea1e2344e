"""Figures of a study: they show what the records say, cut and cover nothing, and bear any study."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from PIL import Image

from golow.measure.words import LEAST_ROUNDS
from golow.records.errors import GolowError
from golow.report import style
from golow.report.published import levental2020_grid
from golow.report.study.cuts import cuts, overview
from golow.report.study.figures import figures, write_study_figures
from golow.report.study.maps import measure_map, ratio_map
from golow.report.study.measures import MEMORY, TIME, UTILIZATION
from golow.report.study.planes import planes
from golow.report.study.rows import StudyRow, rows_of
from golow.report.study.surfaces import surface
from support.examples import examples
from support.pages.figure_checks import defects, described, spilt
from support.places import DOCS
from support.records.drawn_studies import (
    SMALL,
    cell,
    levental_like,
    measured,
    plane,
    run,
    small,
    studies,
    three_levels,
    write,
)

PAPER = levental2020_grid()
LEVENTAL = rows_of("levental-2020", levental_like())


# ---------------------------------------------------------------- nothing is cut or covered


DRAWN = [name for name, _ in figures(small(), None)]


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_nothing_is_cut_or_covered(name: str) -> None:
    figure = dict(figures(small(), PAPER))[name]()
    assert defects(figure) + spilt(figure) == []


@pytest.mark.slow
def test_nothing_is_cut_or_covered_in_the_papers_whole_grid() -> None:
    infer, train = planes(LEVENTAL)
    for figure in (
        surface(train, TIME, PAPER),
        surface(infer, UTILIZATION),
        ratio_map(train, PAPER),
        cuts(infer, TIME, "batch"),
    ):
        assert defects(figure) + spilt(figure) == []


@pytest.mark.slow
def test_a_number_that_covers_another_is_seen() -> None:
    figure = ratio_map(small())
    figure.axes[0].text(0, 0, "planted")
    figure.axes[0].text(-0.6, 1, "planted", horizontalalignment="right")
    assert {text.partition(" ")[2] for text in spilt(figure)} >= {"leaves its panel"}
    assert any(" covers planted" in text for text in spilt(figure))


@pytest.mark.slow
def test_titles_have_room() -> None:
    levels = ("eager", "compile:freezing-cudagraphs", "eager:channels_last", "a_level_of_ones_own")
    cells = [cell(batch, 8, levels) for batch in (1, 2)]
    shown = plane(
        *(measured(one, [run(one, v, 1.0, 1.0, memory=1e9) for v in levels]) for one in cells)
    )
    for figure in (measure_map(shown, MEMORY), ratio_map(shown)):
        assert defects(figure) == []


@pytest.mark.slow
@examples(8, suppress_health_check=list(HealthCheck))
@given(studies(), st.sampled_from((None, PAPER)))
def test_no_study_is_too_odd(rows: list[StudyRow], paper: object) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shown in planes(rows):
            for _, draw in figures(shown, PAPER if paper else None):
                assert defects(draw()) == []


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["a second row without a time", "one power of ten"])
def test_nothing_and_a_point_have_scales(odd: str) -> None:
    """Hypothesis drew both at last."""
    rows = plane(three_levels(8, (8.0, None, None)), three_levels(100, (None, None, None))).rows
    first = next(row for row in rows if row.time)
    times = {"a second row without a time": [1.0, None], "one power of ten": [1e-5 / 100]}[odd]
    changed = [
        msgspec.structs.replace(first, cell=f"{k:012d}", batch=100, rounds=1, sample_time=time)
        for k, time in enumerate(times)
    ]
    changed = [
        msgspec.structs.replace(row, time=row.sample_time, time_low=None, time_high=None)
        for row in changed
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shown in planes([*(row for row in rows if not row.time), *changed]):
            for _, draw in figures(shown, None):
                assert defects(draw()) == []


def test_a_study_without_cells_has_no_figures() -> None:
    assert planes([]) == []


# ---------------------------------------------------------------- what is shown was recorded


def test_lines_are_times_a_sample_and_bands_their_intervals() -> None:
    shown = plane(
        three_levels(8, (8.0, 4.0, 2.0), half_width=0.1),
        three_levels(16, (8.0, 8.0, None)),
        three_levels(32, (32.0, 8.0, 4.0)),
    )
    panel = cuts(shown, TIME, "batch").axes[0]
    lines = lines_of(panel)
    assert panel.get_xscale() == panel.get_yscale() == "log"
    assert lines[style.look("eager").colour] == pytest.approx([1, 0.5, 1])
    assert lines[style.look("libtorch").colour] == pytest.approx([0.5, 0.5, 0.25])
    assert lines[style.look("cudnn").colour] == pytest.approx([0.25, math.nan, 0.125], nan_ok=True)
    band = panel.collections[0].get_paths()[0].vertices
    at_8 = band[band[:, 0] == 8][:, 1]
    assert (at_8.min(), at_8.max()) == pytest.approx((0.9, 1.1))
    assert [label.get_text() for label in panel.get_xticklabels()] == ["8", "16", "32"]
    assert panel.get_title("left") == "time, resolution 32"


def lines_of(panel: Axes) -> dict[str, np.ndarray]:
    """The values of each level's line, by its colour."""
    return {
        line.get_color(): np.asarray(line.get_ydata())
        for line in panel.lines
        if line.get_linestyle() != "None"
    }


def test_points_of_too_few_rounds_are_hollow_without_line_and_interval() -> None:
    shown = plane(
        three_levels(8, (8.0, 4.0, 2.0)),
        three_levels(16, (8.0, 4.0, 2.0), rounds=1),
        three_levels(32, (8.0, 4.0, 2.0), rounds=LEAST_ROUNDS),
    )
    figure = cuts(shown, TIME, "batch")
    panel, black = figure.axes[0], style.look("eager").colour
    assert lines_of(panel)[black] == pytest.approx([1, math.nan, 0.25], nan_ok=True)
    [hollow] = [
        line for line in panel.lines if line.get_color() == black and line.get_linestyle() == "None"
    ]
    assert list(hollow.get_xdata()) == [16] and list(hollow.get_ydata()) == [0.5]
    assert hollow.get_markerfacecolor() == "white"
    drawn = [path.vertices for shape in panel.collections for path in shape.get_paths()]
    assert not any((vertices[:, 0] == 16).any() for vertices in drawn)
    told = [text.get_text() for text in figure.legends[0].get_texts()]
    assert told[-1] == "fewer than 5 rounds"
    # Memory and utilization are readings, whatever the race was.
    [line] = [
        values
        for colour, values in lines_of(cuts(shown, UTILIZATION, "batch").axes[0]).items()
        if colour == black
    ]
    assert np.isfinite(line).all()


@pytest.mark.parametrize("name", DRAWN)
def test_a_caption_has_two_lines(name: str) -> None:
    figure = dict(figures(small(), PAPER))[name]()
    first, second = figure.get_supxlabel().split("\n")
    assert first.startswith("resnet50, training step: ")
    assert second == "NVIDIA H200; torch 2.11.0, golow 0.1.0; 2026-11-20"


@pytest.mark.slow
def test_the_details_of_a_caption_are_in_the_file(tmp_path: Path) -> None:
    figure = ratio_map(small(), PAPER)
    svg, png, pdf = style.save_figure(figure, tmp_path, "ratio", ("svg", "png", "pdf"))
    told = described(figure)
    assert "Not measured, of 9 cells" in told
    text = ElementTree.fromstring(svg.read_text()).find(".//{*}description")  # noqa: S314
    assert text is not None and " ".join((text.text or "").split()) == told
    assert " ".join(Image.open(png).info["Description"].split()) == told
    assert b"/Subject" in pdf.read_bytes()


@pytest.mark.slow
def test_all_text_of_an_svg_is_text(tmp_path: Path) -> None:
    for name, draw in figures(small(), PAPER):
        figure = draw()
        [file] = style.save_figure(figure, tmp_path, name, ("svg",))
        texts = ElementTree.fromstring(file.read_text()).findall(".//{*}text")  # noqa: S314
        there = {"".join(text.itertext()) for text in texts}
        shown = {
            text.get_text()
            for panel in figure.axes
            if panel.get_visible()
            for text in (*panel.texts, panel.title, panel._left_title)  # type: ignore[attr-defined]
            if text.get_visible() and text.get_text() and "\n" not in text.get_text()
        }
        assert shown <= there


def test_the_metadata_says_what_how_where_and_when() -> None:
    text = described(overview(small(), PAPER))
    for part in (
        "resnet50, training step: time per sample, memory, GPU utilization over resolution and "
        "batch size",
        "Time per sample: median time of an iteration divided by the batch size",
        "memory: on the GPU, as the driver reports it for the level's process",
        "bands: 95% intervals",
        "95% intervals are 1.6% wide (median), 1.6% at most.",
        "NVIDIA H200, driver 570.1; AMD EPYC 9454, 16 threads; torch 2.11.0, golow 0.1.0, cuDNN",
        "golow study run a-study --device cuda",
        "PyTorch as eager",
        "on a Tesla V100-PCIE-32GB, PyTorch 1.7.0, CUDA 11.1",
        "arXiv:2012.07163",
        "Not measured, of 9 cells:",
    ):
        assert part in text


@pytest.mark.parametrize(("width", "text"), [(0.123, "12%"), (0.999, "100%"), (1.18, "118%")])
def test_the_caption_says_how_wide_wide_intervals_are(width: float, text: str) -> None:
    rows = [
        msgspec.structs.replace(row, time_low=row.time, time_high=row.time * (1 + width))
        for row in small().rows
        if row.time is not None
    ]
    assert f"95% intervals are {text} wide (median)" in described(
        cuts(small()._replace(rows=rows), TIME, "batch")
    )


# ---------------------------------------------------------------- files


@pytest.mark.slow
def test_the_pages_show_the_figures_of_their_records(monkeypatch: pytest.MonkeyPatch) -> None:
    docs = DOCS
    monkeypatch.syspath_prepend(str(docs))
    from generate_figures import drawn

    for name, figure in drawn():
        text = (docs / "results" / "figures" / f"{name}.svg").read_text()
        there = ElementTree.fromstring(text).find(".//{*}description")  # noqa: S314
        assert there is not None, f"python docs/generate_figures.py writes {name}"
        assert " ".join((there.text or "").split()) == described(figure)
        assert defects(figure) == []


@pytest.mark.slow
def test_equal_records_on_disk_give_equal_files(tmp_path: Path) -> None:
    asked = [cell(batch, 32) for batch in (8, 16)]
    cells = [measured(a, [run(a, "eager", 2.0, 1.0), run(a, "cudnn", 1.0, 0.5)]) for a in asked]
    folder = write(tmp_path / "a-study", cells)

    def written(out: str) -> dict[str, bytes]:
        files = write_study_figures(folder, tmp_path / out, ("svg",), "levental2020")
        assert set(files) == {*(tmp_path / out).iterdir()}
        return {file.name: file.read_bytes() for file in files}

    first = written("first")
    assert set(first) == {
        *(f"{name}-infer.svg" for name in ("overview", "time-over-batch", "time-map")),
        *("ratio-map-infer.svg", "fastest-infer.svg"),
        *("utilization-over-batch-infer.svg", "utilization-map-infer.svg"),
    }
    with matplotlib.rc_context({"font.size": 20, "svg.hashsalt": "mine"}):
        assert written("second") == first


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    folder = write(tmp_path / "a-study", SMALL[:1])
    with pytest.raises(GolowError, match="cannot be written as gif"):
        write_study_figures(folder, tmp_path / "out", ("gif",))
    with pytest.raises(GolowError, match="there is no study in"):
        write_study_figures(tmp_path, tmp_path / "out", ("svg",))

"""The paper's figures are drawn under a study's own, as they were published."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from golow.records.errors import GolowError
from golow.report import style
from golow.report.published import grid, levental2020_grid
from golow.report.study.cuts import cuts
from golow.report.study.maps import ratio_map
from golow.report.study.measures import TIME
from golow.report.study.planes import planes, published_plane
from golow.report.study.rows import rows_of
from support.pages.figure_checks import said
from support.records.drawn_studies import cell, levental_like, measured, plane, run, small

PAPER = levental2020_grid()
LEVENTAL = rows_of("levental-2020", levental_like())


def test_the_papers_numbers_are_those_of_its_table() -> None:
    found = {(c.level, c.mode, c.batch, c.resolution): c for c in PAPER.cells}
    assert len(found) == len(PAPER.cells) == 309
    one = found["cudnn", "infer", 8, 8]
    assert one.sample_time == pytest.approx(0.5155981e-3)
    assert (one.memory, one.utilization) == pytest.approx((1043 * 2**20, 0.959))
    assert {cell.level for cell in PAPER.cells} == set(PAPER.levels.values())
    assert not any(level == "torchscript" and mode == "train" for level, mode, *_ in found)


def test_the_paper_lies_under_its_own_model_and_axes_only() -> None:
    def dashed(figure: Figure) -> dict[str, np.ndarray]:
        lines = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
        return {line.get_color(): np.asarray(line.get_ydata()) for line in lines}

    under = dashed(cuts(small(), TIME, "batch", PAPER))
    assert set(under) == {style.look(level).colour for level in ("eager", "libtorch", "cudnn")}
    eager = under[style.look("eager").colour]
    assert 1e3 * eager == pytest.approx([10.25, 2.85, math.nan], rel=1e-2, nan_ok=True)
    assert dashed(cuts(small(), TIME, "batch")) == {}

    def eager_alone(model: str) -> Figure:
        cells = [cell(batch, 32, ("eager",), model=model) for batch in (8, 16)]
        shown = plane(*(measured(one, [run(one, "eager", 1.0, 1.0)]) for one in cells))
        return cuts(shown, TIME, "batch", PAPER)

    assert set(dashed(eager_alone("resnet50"))) == {style.look("eager").colour}
    assert dashed(eager_alone("lenet5")) == {}
    assert "2012.07163" not in said(eager_alone("lenet5"))


@pytest.mark.slow
def test_the_papers_ratios_are_over_its_own_pytorch() -> None:
    under = published_plane(PAPER, planes(LEVENTAL)[1])
    assert under is not None
    assert under.of("cudnn")[512, 8].ratio == pytest.approx(29.9926928 / 25.86, rel=1e-3)
    panels = ratio_map(planes(LEVENTAL)[1], PAPER).axes[:-1]  # the last is the colour bar
    titles = [panel.get_title("left") for panel in panels if panel.get_visible()]
    assert titles == [
        *("torchscript: ratio", "libtorch: ratio", "cudnn: ratio"),
        *("libtorch: ratio, 2020", "cudnn: ratio, 2020"),
    ]


def test_other_published_figures_are_refused() -> None:
    with pytest.raises(GolowError, match="no published figures 'levental2021'") as told:
        grid("levental2021")
    assert told.value.hint == "use levental2020."

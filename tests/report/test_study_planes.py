"""Planes of a study: which two axes it is drawn over, and what has its place there."""

from __future__ import annotations

import pytest

from golow.report.published import levental2020_grid
from golow.report.study.cuts import overview
from golow.report.study.figures import figures
from golow.report.study.maps import ratio_map
from golow.report.study.measures import RATIO
from golow.report.study.planes import planes, published_plane
from golow.report.study.rows import rows_of
from support.pages.figure_checks import defects, spilt
from support.records.drawn_studies import (
    Measured,
    asking,
    cell,
    levental_like,
    measured,
    plane,
    run,
    unmeasured,
)

PAPER = levental2020_grid()


def test_x_and_y_are_the_first_two_axes_that_vary_and_the_rest_tells_planes_apart() -> None:
    def axes(cells: list[Measured]) -> list[tuple[str, str, str]]:
        found = planes(rows_of("a", cells))
        return [(shown.x, shown.y, shown.name) for shown in found]

    def one(**changes: object) -> Measured:
        asked = cell(**changes)  # type: ignore[arg-type]
        return measured(asked, [run(asked, level, 1.0, 1.0) for level in asked.levels])

    assert axes([one()]) == [("batch", "resolution", "infer")]
    assert axes([one(threads=1), one(threads=2)]) == [("threads", "batch", "infer")]
    nets = [one(model=m, precision=p) for m in ("mlp", "vgg16") for p in ("tf32", "default")]
    assert axes(nets) == [("precision", "model", "infer")]
    assert planes(rows_of("a", nets))[0].xs == ["default", "tf32"]
    three = [
        one(batch=b, resolution=r, model=m) for b in (1, 8) for r in (8, 16) for m in ("a", "b")
    ]
    assert axes(three) == [("resolution", "batch", f"infer-{model}") for model in "ab"]
    other = measured(cell(), [run(cell(), "eager", 1.0, 1.0)], "other")
    assert [name for _, _, name in axes([one(), other])] == ["infer-h200", "infer-other"]


@pytest.mark.slow
def test_what_is_not_measured_yet_has_its_place() -> None:
    """So that the paper's figures of those places are shown."""
    asked = asking("levental-2020", [each.record.cell for each in levental_like()])
    some = rows_of("levental-2020", levental_like((8, 32, 1024), (8, 64), ("train",)))
    [shown] = planes(some, asked)
    assert shown.xs == shown.ys == [8 << power for power in range(8)]
    assert [each.xs for each in planes(some)] == [[8, 64]]
    under = published_plane(PAPER, shown)
    assert under is not None
    assert 512 in {row.resolution for row in under.rows}
    figure = ratio_map(shown, PAPER)
    assert defects(figure) == []
    assert spilt(figure) == []
    [row, *_] = some
    assert [(plane.x, plane.xs) for plane in planes([row], asked)] == [("resolution", shown.xs)]
    assert planes([], asked) == []


def test_a_study_that_varies_threads_has_lines_over_them() -> None:
    cells = [cell(threads=threads) for threads in (4, 1, 2)]
    shown = plane(*(measured(c, [run(c, level, 1.0, 1.0) for level in c.levels]) for c in cells))
    assert shown.xs == [1, 2, 4]
    assert "time-over-threads" in dict(figures(shown))


def test_ranks_have_lines_and_the_ideal_beside_them() -> None:
    """A level's ideal begins at its own fewest ranks; samples are those of all ranks."""
    shown = plane(*(_of_ranks(ranks) for ranks in (1, 2, 4)))
    assert shown.xs == [1, 2, 4]
    [panel, *_] = dict(figures(shown))["scaling"]().axes
    lines = [
        (list(line.get_xdata()), pytest.approx(list(line.get_ydata())))
        for line in panel.get_lines()
        if line.get_linestyle() == ":"
    ]
    assert ([1, 2, 4], [8, 16, 32]) in lines  # a step of 8 samples a rank takes a second
    assert ([2, 4], [8, 16]) in lines  # of two seconds
    assert "ddp's" in RATIO.how(shown.rows)


def _of_ranks(ranks: int) -> Measured:
    seconds = {"onednn": 1.0} if ranks == 1 else {"onednn": 1.1, "ddp": 2.0 + 0.1 * (ranks - 2)}
    asked = cell(8, levels=tuple(seconds), mode="train", device="cpu", ranks=ranks)
    return measured(asked, [run(asked, level, time, 1.0) for level, time in seconds.items()])


def test_the_overview_cuts_where_something_was_measured() -> None:
    def at(batch: int, resolution: int) -> Measured:
        asked = cell(batch, resolution)
        return measured(asked, [run(asked, level, 1.0, 1.0) for level in asked.levels])

    empty = [unmeasured(cell(batch, 32), "failed", "it is too small") for batch in (1, 2)]
    shown = plane(*(at(batch, side) for batch in (1, 2) for side in (64, 96)), *empty)
    titles = {panel.get_title("left") for panel in overview(shown).axes}
    assert "time, resolution 64" in titles
    assert "resolution 32" not in titles

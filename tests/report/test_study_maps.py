"""Maps and surfaces of a study: ratios, the fastest level, why a cell has no number."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.contour import ContourSet
from matplotlib.patches import Rectangle

from golow.records.comparison import VerdictName, Word
from golow.report.study.cells import CROSSED, HATCHED, UNCOLOURED
from golow.report.study.fastest import fastest_map
from golow.report.study.maps import measure_map, ratio_map
from golow.report.study.measures import MEMORY, TIME
from golow.report.study.planes import Plane
from golow.report.study.rows import SIGNS
from golow.report.study.surfaces import surface
from support.examples import examples
from support.pages.figure_checks import described, said
from support.records.drawn_studies import (
    GIB,
    SMALL,
    THREE_LEVELS,
    Measured,
    cell,
    measured,
    plane,
    run,
    three_levels,
    unmeasured,
)


def cells_of(panel: Axes) -> dict[tuple[float, float], str]:
    """What stands in each cell, by its numbers along x and y."""
    return {text.get_position(): text.get_text() for text in panel.texts}


def hatched(panel: Axes) -> set[tuple[float, float]]:
    squares = [patch for patch in panel.patches if isinstance(patch, Rectangle)]
    return {(s.get_x() + 0.5, s.get_y() + 0.5) for s in squares if s.get_hatch()}


def border(panel: Axes) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """The pieces of the line, each from one point to the next."""
    lines = [found for found in panel.collections if isinstance(found, ContourSet)]
    return [
        (tuple(one), tuple(other))
        for path in (path for found in lines for path in found.get_paths())
        for part in path._iter_connected_components()
        for one, other in itertools.pairwise(part.vertices)
    ]


def crossings(panel: Axes, start: tuple[int, int], end: tuple[int, int]) -> list[float]:
    """Where the line crosses the way from the middle of one cell to that of another: 0 to 1."""
    (x, y), found = start, set()
    dx, dy = end[0] - x, end[1] - y
    for (ax, ay), (bx, by) in border(panel):
        ex, ey = bx - ax, by - ay
        denominator = dx * ey - dy * ex
        if abs(denominator) > 1e-9:
            at = ((ax - x) * ey - (ay - y) * ex) / denominator
            along = ((ax - x) * dy - (ay - y) * dx) / denominator
            if -1e-9 <= at <= 1 + 1e-9 and -1e-9 <= along <= 1 + 1e-9:
                found.add(round(at, 6))
    return sorted(found)


def in_states() -> Plane:
    """A cell for every way in which libtorch may have no number, though some were recorded."""
    asked = {batch: cell(batch, 32, THREE_LEVELS) for batch in (1, 2, 4, 8, 16, 32, 64)}

    def fails(batch: int, verdict: VerdictName, reason: str) -> Measured:
        first = run(asked[batch], "eager", 1.0, 1.0, memory=GIB)
        last = run(asked[batch], "cudnn", 0.5, 0.5, memory=2 * GIB)
        other = run(asked[batch], "libtorch", 0.5, 0.5, None, verdict, reason, GIB)
        return measured(asked[batch], [first, other, last])

    return plane(
        fails(1, "failed", "out of memory: no room"),
        fails(2, "failed", "it died: signal 11"),
        fails(4, "differs", "0/output/0 is off"),
        fails(8, "unavailable", "no compiler"),
        unmeasured(asked[16], "skipped", "it needs 200 GiB"),
        unmeasured(asked[32], "failed", "out of memory: in the parent"),
        three_levels(64, (4.0, 4.1, 3.0)),
    )


def test_a_map_shows_ratios_and_why_there_is_none() -> None:
    figure = ratio_map(in_states())
    libtorch, cudnn = figure.axes[:2]
    assert cells_of(libtorch) == dict(
        zip(
            [(x, 0) for x in range(7)],
            ["oom", "fail", "diff", "n/a", "skip", "oom", "1.02"],
            strict=True,
        )
    )
    assert [cells_of(cudnn)[x, 0] for x in range(7)] == [*["0.50"] * 4, "skip", "oom", "0.75"]
    [legend] = figure.legends
    told = {text.get_text() for text in legend.get_texts()}
    assert {"oom: out of memory", "skip: skipped", "n/a: unavailable", "fail: failed"} <= told
    assert "of 7 cells: out of memory (libtorch 2, eager 1, cudnn 1)" in described(figure)


def test_a_memory_map_shows_cells_out_of_memory() -> None:
    figure = measure_map(in_states(), MEMORY)
    [_, libtorch, cudnn] = figure.axes[:3]
    assert [cells_of(libtorch)[x, 0] for x in (0, 4, 5)] == ["oom", "skip", "oom"]
    assert cells_of(cudnn)[0, 0] == "2"
    assert "memory in GiB" in said(figure)
    assert "Memory: on the GPU, as the driver reports it" in described(figure)


def test_a_cell_that_is_not_in_the_record_stays_white() -> None:
    shown = plane(*(SMALL[place] for place in (0, 1, 3, 5, 8)))
    assert len(cells_of(ratio_map(shown).axes[0])) == 5


RATIOS: dict[Word, float] = {"faster": 0.5, "same": 1.0, "slower": 1.5, "unclear": 0.97}
SIDES = {"faster": 1, "same": -1, "slower": -1, "unclear": 0}


def in_words(words: dict[tuple[int, int], Word], rounds: int = 12) -> Axes:
    """The ratio map of cudnn with these words, by the numbers of cells along x and y."""
    cells = []
    for (x, y), told in words.items():
        asked = cell(2**y, 8 * 2**x)
        runs = [run(asked, "eager", 1.0, 1.0, rounds=rounds)]
        runs += [run(asked, "cudnn", RATIOS[told], RATIOS[told], told, rounds=rounds)]
        cells.append(measured(asked, runs))
    axes = ratio_map(plane(*cells)).axes
    [panel] = [panel for panel in axes if panel.get_title("left") == "cudnn: ratio"]
    return panel


PLACES = list(itertools.product(range(4), range(3)))
grids = st.lists(
    st.sampled_from(("faster", "same", "slower", "unclear")),
    min_size=len(PLACES),
    max_size=len(PLACES),
).map(lambda words: dict(zip(PLACES, words, strict=True)))


@pytest.mark.slow
@examples(20)
@given(grids)
def test_the_line_follows_the_words(words: dict[tuple[int, int], Word]) -> None:
    """It crosses the border of neighbours that are faster and not, and no other; where a level is
    unclear it takes neither side."""
    panel, sides = in_words(words), {at: SIDES[told] for at, told in words.items()}
    if not {1, -1} <= set(sides.values()):
        assert border(panel) == []
        return
    for (x, y), side in sides.items():
        for other in ((x + 1, y), (x, y + 1)):
            found = crossings(panel, (x, y), other) if other in sides else []
            if other in sides and side and sides[other]:
                assert found == ([0.5] if side != sides[other] else [])
    assert hatched(panel) == {at for at, told in words.items() if told == "unclear"}


def test_the_line_goes_through_what_is_unclear() -> None:
    words: list[Word] = ["faster", "unclear", "same"]
    panel = in_words({(x, y): told for y in range(2) for x, told in enumerate(words)})
    assert {x for piece in border(panel) for x, _ in piece} == {1.0}
    only = in_words({(0, 0): "faster", (1, 0): "unclear", (0, 1): "faster", (1, 1): "faster"})
    assert border(only) == []


def test_no_line_is_drawn_over_what_has_no_order() -> None:
    cells = []
    for model, ratio in (("resnet50", 0.5), ("vgg16", 1.5)):
        for precision in ("default", "bf16"):
            asked = cell(8, 32, model=model, precision=precision)
            runs = [run(asked, "eager", 1.0, 1.0), run(asked, "cudnn", ratio, ratio)]
            cells.append(measured(asked, runs))
    figure = ratio_map(plane(*cells))
    assert border(figure.axes[0]) == [] and figure.legends == []
    assert said(figure).startswith("2 models, inference: ")  # the axis has their names


def test_a_number_from_too_few_rounds_has_no_colour_in_a_map() -> None:
    few, enough = in_words({(0, 0): "unclear"}, rounds=3), in_words({(0, 0): "unclear"})
    assert cells_of(few) == cells_of(enough) == {(0, 0): "0.97"}
    assert colour_of(few, 0) == to_rgba(UNCOLOURED) != colour_of(enough, 0)
    assert hatches(few) == {CROSSED["hatch"]}
    assert hatches(enough) == {HATCHED["hatch"]}


def hatches(panel: Axes) -> set[str]:
    return {patch.get_hatch() for patch in panel.patches if patch.get_hatch()}


def colour_of(panel: Axes, x: int) -> tuple[float, ...]:
    squares = [patch for patch in panel.patches if isinstance(patch, Rectangle)]
    [found] = [s for s in squares if s.get_x() == x - 0.5 and not s.get_hatch()]
    return tuple(found.get_facecolor())


def test_ratios_are_blue_below_1_and_red_as_far_above_it() -> None:
    asked = cell(8, 32, ("eager", "cudnn"))
    colours = []
    for ratio in (0.25, 1.0, 4.0):
        runs = [run(asked, "eager", 1.0, 1.0), run(asked, "cudnn", 1.0, ratio)]
        other = cell(16, 32, ("eager", "cudnn"))
        far = [run(other, "eager", 1.0, 1.0), run(other, "cudnn", 1.0, 4.0)]
        figure = ratio_map(plane(measured(asked, runs), measured(other, far)))
        [square] = [p for p in figure.axes[0].patches if p.get_x() == -0.5]
        colours.append(square.get_facecolor()[:3])
    blue, white, red = colours
    assert blue[2] > blue[0] and red[0] > red[2]
    assert min(white) > 0.95
    assert blue[2] - blue[0] == pytest.approx(red[0] - red[2], abs=0.1)


def test_the_fastest_level_of_each_cell_with_its_ratio() -> None:
    shown = plane(
        three_levels(8, (1.0, 0.5, 0.25)),
        three_levels(16, (1.0, 1.01, 2.0)),
        three_levels(32, (1.0, 0.5, None)),
        unmeasured(cell(64, 32, THREE_LEVELS), "skipped", "too large"),
    )
    figure = fastest_map(shown)
    told = cells_of(figure.axes[0])
    assert [told[x, 0] for x in range(4)] == ["C 0.25", "A 1.00", "B 0.50", "skip"]
    assert hatched(figure.axes[0]) == {(1, 0)}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        *("A: eager", "B: libtorch", "C: cudnn"),
        "another level's interval overlaps",
        "skip: skipped",
    ]


def test_every_outcome_has_a_sign_of_its_own() -> None:
    signs = list(SIGNS.values())
    assert len(set(signs)) == len(signs)


def test_contours_lie_where_the_values_are() -> None:
    batches, resolutions = (1, 2, 4), (8, 16, 32)
    cells = []
    for batch, resolution in itertools.product(batches, resolutions):
        asked = cell(batch, resolution, ("eager",))
        cells.append(measured(asked, [run(asked, "eager", 1e-3 * batch * resolution, 1.0)]))
    panel = surface(plane(*cells), TIME).axes[0]
    assert panel.get_title("left") == "eager: time"
    [fill, lines] = panel.collections
    assert len(fill.levels) > 50  # as smooth as the bar
    at_10_ms = dict(zip(lines.levels, lines.get_paths(), strict=True))[0.01].vertices
    where = np.interp(0.01, [0.008, 0.016], [0, 1])
    assert at_10_ms[:, 0] == pytest.approx(where)


def test_a_surface_has_no_colour_from_too_few_rounds() -> None:
    batches, resolutions = (1, 2, 4, 8), (8, 16, 32)
    cells = []
    for batch, resolution in itertools.product(batches, resolutions):
        asked, rounds = cell(batch, resolution, ("eager",)), 1 if batch == 8 else 12
        seconds = 1e3 if batch == 8 else 1e-3 * batch * resolution
        cells.append(measured(asked, [run(asked, "eager", seconds, 1.0, rounds=rounds)]))
    figure = surface(plane(*cells), TIME)
    panel = figure.axes[0]
    corners = np.concatenate([path.vertices for path in panel.collections[0].get_paths()])
    assert corners[:, 1].max() == 2  # not up to the batch of 8
    assert panel.collections[0].norm.vmax < 1  # and the bar does not span its 1000 s
    dots, hollow = (line for line in panel.lines)
    assert len(dots.get_xdata()) == 9
    assert list(hollow.get_ydata()) == [3, 3, 3]
    assert hollow.get_markerfacecolor() == "none"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fewer than 5 rounds"]

"""The figures of a study, from its rows alone; `write_figures` writes all of them.

The paper's figures 5 to 11 are the overview and the surfaces; the cuts through every batch size and
resolution, and the maps, are golow's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from golow.programs.study.store import StudyFolder
from golow.report.published import PublishedGrid, grid
from golow.report.study.cuts import cuts, overview
from golow.report.study.fastest import fastest_map
from golow.report.study.maps import measure_map, ratio_map
from golow.report.study.measures import MEASURES, MEMORY, THROUGHPUT, is_measured
from golow.report.study.planes import Plane, planes
from golow.report.study.rows import load
from golow.report.study.surfaces import has_surface, surface
from golow.report.style import Format, drawing, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[], "Figure"]


@drawing()
def write_study_figures(
    study: Path,
    folder: Path,
    formats: Sequence[Format] = ("svg", "png"),
    reference: str = "",
) -> list[Path]:
    """Write every figure of the study in that folder into another one; returns the files, none if
    nothing was measured yet.

    Equal records give equal files. reference: name of published figures to draw with them. Raises
    `GolowError` without matplotlib, for an unknown reference, or if the folder cannot be written.
    """
    paper = grid(reference) if reference else None
    return [
        file
        for plane in planes(load(study), StudyFolder(study).study())
        for name, draw in figures(plane, paper)
        for file in save_figure(draw(), folder, f"{name}-{plane.name}", formats)
    ]


def figures(plane: Plane, paper: PublishedGrid | None = None) -> Iterator[tuple[str, Draw]]:
    """The names of the plane's figures, each with the function that draws it. Lines if an axis is
    numeric, surfaces if both are, maps with numbers otherwise and always for memory."""
    numeric = [axis for axis in (plane.x, plane.y) if plane.is_numeric(axis)]
    if numeric:
        yield "overview", partial(overview, plane, paper)
    for measure in MEASURES:
        if not is_measured(plane, measure):
            continue
        for axis in numeric:
            yield f"{measure.name}-over-{axis}", partial(cuts, plane, measure, axis, paper)
        if has_surface(plane):
            yield f"{measure.name}-surface", partial(surface, plane, measure, paper)
        if measure is MEMORY or not has_surface(plane):
            yield f"{measure.name}-map", partial(measure_map, plane, measure, paper)
    if "ranks" in numeric and is_measured(plane, THROUGHPUT):
        yield "scaling", partial(cuts, plane, THROUGHPUT, "ranks", paper)
    yield "ratio-map", partial(ratio_map, plane, paper)
    yield "fastest", partial(fastest_map, plane, paper)

"""Draws the figures of studies in ``docs/results/figures`` from their rows in ``docs/results``.

python docs/generate_figures.py
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from generate_report_levental2020 import ALIKE, DOCS
from generate_report_levental2020 import rows as levental2020_rows

from golow.models import ZOO
from golow.report.published import levental2020_grid
from golow.report.study.figures import figures
from golow.report.study.planes import planes
from golow.report.study.rows import StudyRow
from golow.report.style import drawing, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = DOCS / "results"
# The figures of a plane that the pages show, and their names there.
LEVENTAL = {
    "infer": {"overview": "", "ratio-map": "-map", "memory-map": "-memory"},
    "train": {"overview": "", "ratio-map": "-map", "fastest": "-fastest"},
}
PRECISION = ALIKE | {"study": "precision-five-nets", "batch": 32, "resolution": None}


def precision_rows() -> Iterator[StudyRow]:
    """The rows of the study of precisions; an empty cell of the file is a number that there is
    not."""
    with (RESULTS / "precision-five-nets.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            cell = "-".join(row[name] for name in ("model", "mode", "precision"))
            known = {name: text for name, text in row.items() if text != ""}
            size = ZOO[row["model"]].parameters  # the order of models in figures
            known = {"verdict": None, **PRECISION, "cell": cell, "parameters": size, **known}
            yield msgspec.convert(known, StudyRow, strict=False)


@drawing()
def drawn() -> Iterator[tuple[str, Figure]]:
    """The figures with the names of their files."""
    for plane in planes(list(levental2020_rows())):
        mode = str(plane.fixed["mode"])
        for name, draw in figures(plane, levental2020_grid()):
            if name in LEVENTAL[mode]:
                yield f"levental{LEVENTAL[mode][name]}-{mode}", draw()
    for plane in planes(list(precision_rows())):
        [draw] = [draw for name, draw in figures(plane) if name == "ratio-map"]
        yield f"precision-map-{plane.fixed['mode']}", draw()


if __name__ == "__main__":
    for name, figure in drawn():
        for file in save_figure(figure, RESULTS / "figures", name, ("svg",)):
            print(file)

"""The figure of a generation: time of a token over the tokens before it, a line per level, with the
roof of the memory below."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from golow.programs.generation.generation_record import Generation, TextCase
from golow.report.console import visible
from golow.report.generation.facts import conditions, curve, title
from golow.report.style import (
    Caption,
    Format,
    caption,
    drawing,
    legend,
    look,
    panels,
    save_figure,
    say,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ONE_PANEL, PANEL = (6.0, 3.0), (3.5, 3.0)  # inches
MARKS = 8  # of a line
READING = (
    "Median over the rounds of the time of one token of all texts. Dashed: a plain read of the "
    "weights and of the keys and values so far."
)


def write_figures(
    found: Generation, folder: Path, formats: Sequence[Format] = ("svg",)
) -> list[Path]:
    """Draw the figure into the folder; returns the files."""
    return save_figure(generation_figure(found), folder, "generation", formats)


@drawing()
def generation_figure(found: Generation) -> Figure:
    """One panel per batch size."""
    size = PANEL if len(found.cases) > 1 else ONE_PANEL
    figure, drawn = panels(len(found.cases), size, "tokens before", "ms a token")
    names: list[str] = []
    for panel, case in zip(drawn, found.cases, strict=True):
        names += _draw(panel, found, case)
        if len(found.cases) > 1:
            panel.set_title(f"batch {case.workload.batch}")
    legend(figure, list(dict.fromkeys(names)))
    lines = [title(found), *conditions(found).split("\n"), found.created[:10]]
    caption(figure, Caption([visible(line) for line in lines], [READING]))
    return figure


def _draw(panel: Axes, found: Generation, case: TextCase) -> list[str]:
    names = []
    for run in case.runs:
        points = curve(case, run)
        if not points:
            continue
        names.append(run.level)
        colour, marker, line = look(run.level)
        panel.plot(
            [before for before, _ in points],
            [seconds * 1e3 for _, seconds in points],
            color=colour,
            linestyle=line,
            marker=marker,
            markevery=max(1, len(points) // MARKS),
        )
    if not names:
        say(panel, "nothing was timed")
        return []
    panel.set_ylim(bottom=0)
    _draw_roof(panel, found, case)
    return names


def _draw_roof(panel: Axes, found: Generation, case: TextCase) -> None:
    if found.read_rate is None:
        return
    work = case.workload
    lengths = (work.prompt + 1, work.longest)
    times = [work.read_bytes(n) / found.read_rate.value for n in lengths]
    panel.plot(lengths, [1e3 * s for s in times], color="#606060", linestyle=(0, (4, 2)))

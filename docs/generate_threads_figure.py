"""Draws the report's table of threads, on a CPU and on a GPU, from ``docs/results/threads.md``.

python docs/generate_threads_figure.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from golow.report.style import Caption, caption, drawing, legend_of, look, panels, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

PAGE = Path(__file__).parent / "results" / "threads.md"
REPORT = "the report"
COLUMNS = ("CPU, 1 thread", "CPU, all threads", "GPU, 1 thread", "GPU, all threads")


def rows(text: str) -> Iterator[tuple[str, list[float]]]:
    """The first table's rows: the name, and four times in seconds. Raises ValueError for a page
    whose first table has other columns."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    header, _, *rest = [[part.strip() for part in line.strip("|").split("|")] for line in lines]
    if tuple(header[1:]) != COLUMNS:
        raise ValueError(f"{PAGE.name} does not begin with the table of {', '.join(COLUMNS)}")
    for name, *cells in rest:
        if not re.fullmatch(r"[\d.*]+", "".join(cells)):
            return  # the next table
        yield name, [float(cell.replace("*", "")) for cell in cells]


@drawing()
def figure_of(text: str) -> Figure:
    """A panel for the CPU and one for the GPU: a line from one thread to all for each row."""
    figure, axes = panels(2, (3.2, 3.0), "CPU threads", "seconds an epoch")
    handles: list[Line2D] = []
    for name, seconds in rows(text):
        colour, marker, _ = look(name.partition(",")[0])
        style = "--" if name == REPORT else "-"
        for panel, part in zip(axes, (seconds[:2], seconds[2:]), strict=True):
            [line] = panel.plot(
                (0, 1), part, color=colour, marker=marker, linestyle=style, label=name
            )
        handles.append(line)
    for panel, title in zip(axes, ("on the CPU", "on the GPU"), strict=True):
        panel.set_title(title)
        panel.set(yscale="log", xlim=(-0.25, 1.25))
        panel.set_xticks((0, 1), ("1", "all"))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("")
    legend_of(figure, handles)
    where = "MNIST, 60,000 images in batches of 64; the report's machine is another one"
    caption(figure, Caption(["seconds an epoch with one CPU thread and with all", where]))
    return figure


if __name__ == "__main__":
    drawn = figure_of(PAGE.read_text())
    print(*save_figure(drawn, PAGE.parent / "figures", "threads-epoch", ("svg",)), sep="\n")

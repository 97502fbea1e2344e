"""Draws the epochs of `threads.json` in ``docs/results/records``, on a CPU and on a GPU.

python docs/generate_threads_figure.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stored_tables import RECORDS, Table, stored

from golow.report.style import Caption, caption, drawing, legend_of, look, panels, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

REPORT = "the report"
FIGURES = RECORDS.parent / "figures"


def rows(epochs: Table) -> Iterator[tuple[str, list[float]]]:
    """The rows of the table: the name, and four times in seconds: CPU, 1 thread and all threads,
    then the GPU's."""
    for name, *cells in epochs.rows:
        yield name, [float(cell[0] if isinstance(cell, list) else cell) for cell in cells]


@drawing()
def figure_of(epochs: Table) -> Figure:
    """A panel for the CPU and one for the GPU: a line from one thread to all for each row."""
    figure, axes = panels(2, (3.2, 3.0), "CPU threads", "seconds an epoch")
    handles: list[Line2D] = []
    for name, seconds in rows(epochs):
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
    drawn = figure_of(stored("threads")["epochs"])
    print(*save_figure(drawn, FIGURES, "threads-epoch", ("svg",)), sep="\n")

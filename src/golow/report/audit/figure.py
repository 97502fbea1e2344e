"""An audit as a figure: the effect of every alternative with its interval, one panel per level."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from golow.programs.auditing.audit_record import Audit, AuditedLevel
from golow.records.comparison import Ratio
from golow.report.audit.facts import is_preliminary, ordered
from golow.report.console import visible
from golow.report.profiling.bars import short
from golow.report.style import (
    CAPTION_SIZE,
    Caption,
    Format,
    caption,
    drawing,
    legend_of,
    look,
    new_figure,
    save_figure,
    say,
)
from golow.report.units import ratio_text, seconds_text

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Formatter, Locator

ROW, TITLE, AXIS, WIDTH = 0.2, 0.32, 0.5, 7.0  # inches
MOST_ROWS, CHARACTERS = 24, 40
MARGIN = 0.01  # a difference must exceed it to be called one
NARROWEST, ROOM = 0.05, 1.08  # of the axis: at least 5% to each side, and room beside the intervals
WIDEST = 8.0  # times as slow or fast; what is beyond is at the edge
READING = "Lines: 95% intervals; grey: within 1%, too small to count as a difference."
FAR_APART, STEPS, MOST_TICKS = 4.0, (0.01, 0.02, 0.05, 0.1, 0.2, 0.5), 9


class Mark(NamedTuple):
    """A row: a label, its ratio, and whether two races agree that there is an effect."""

    label: str
    ratio: Ratio
    certain: bool
    best: bool = False


def write_figures(audit: Audit, folder: Path, formats: Sequence[Format] = ("svg",)) -> list[Path]:
    """Draw ``effects`` into the folder; returns the files. Raises `GolowError` where matplotlib is
    not installed or the folder cannot be written."""
    return save_figure(effects(audit), folder, "effects", formats)


@drawing()
def effects(audit: Audit) -> Figure:
    """The ratio of every timed alternative over the default, on a logarithmic axis."""
    shown = {level.level: _marks(level) for level in audit.levels}
    panels = [level for level in audit.levels if shown[level.level]]
    if not panels:
        figure = new_figure(WIDTH, 1.0)
        say(figure.subplots(), "no alternative was timed")
        caption(figure, _caption(audit))
        return figure
    rows = [len(shown[level.level]) for level in panels]
    figure = new_figure(WIDTH, ROW * sum(rows) + TITLE * len(rows) + AXIS)
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=rows)
    low, high = _ends([mark for level in panels for mark in shown[level.level]])
    for panel, level in zip(grid.flat, panels, strict=True):
        _draw(panel, level, shown[level.level], (low, high))
    grid.flat[-1].set_xlabel("time over that of the level's defaults (left of 1: faster)")
    legend_of(figure, list(_handles()))
    caption(figure, _caption(audit))
    return figure


def _marks(level: AuditedLevel) -> list[Mark]:
    """The rows of a level, the fastest first, and its best combination above all."""
    marks = [
        Mark(
            f"{price.choice}: {price.alternative}",
            price.effect,
            price.finding in ("faster", "slower") and not is_preliminary(price),
        )
        for price in ordered(level)
        if price.effect is not None
    ]
    kept = sorted(marks, key=_importance)[:MOST_ROWS]
    marks = [mark for mark in marks if mark in kept]
    best = level.best
    if best is not None and best.run.ratio is not None:
        names = " + ".join(best.alternatives)
        certain = best.run.ratio.word in ("faster", "slower")
        marks.insert(0, Mark(f"best: {names}", best.run.ratio, certain, True))
    return marks


def _importance(mark: Mark) -> tuple[bool, float]:
    """Sort key: certain effects first, then by size."""
    return not mark.certain, -abs(math.log(mark.ratio.value))


def _ends(marks: Sequence[Mark]) -> tuple[float, float]:
    """The ends of the axis."""
    low = min(1 - NARROWEST, *(mark.ratio.low for mark in marks)) / ROOM
    high = max(1 + NARROWEST, *(mark.ratio.high for mark in marks)) * ROOM
    return max(low, 1 / WIDEST), min(high, WIDEST)


def _draw(
    panel: Axes, level: AuditedLevel, marks: Sequence[Mark], ends: tuple[float, float]
) -> None:
    from matplotlib.ticker import NullFormatter, NullLocator

    colour = look(level.level.partition("+")[0]).colour
    panel.axvspan(1 - MARGIN, 1 + MARGIN, color="#E8E8E8", linewidth=0, zorder=0)
    panel.axvline(1, color="#808080", linewidth=0.8, zorder=1)
    for row, mark in enumerate(marks):
        low, value, high = (
            min(max(number, ends[0]), ends[1])
            for number in (mark.ratio.low, mark.ratio.value, mark.ratio.high)
        )
        panel.plot([low, high], [row, row], color=colour, linewidth=1.2, zorder=2)
        panel.plot(
            [value],
            [row],
            marker="D" if mark.best else "o",
            markerfacecolor=colour if mark.certain else "white",
            markeredgecolor=colour,
            color=colour,
            zorder=3,
        )
        _number(panel, row, mark, ends)
    panel.set_yticks(range(len(marks)), [short(mark.label, CHARACTERS) for mark in marks])
    panel.set_ylim(len(marks) - 0.4, -0.6)
    panel.set(xscale="log", xlim=ends)
    panel.xaxis.set_major_locator(_ticks(ends))
    panel.xaxis.set_major_formatter(_formatter())
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.grid(axis="y", visible=False)
    panel.tick_params(axis="y", length=0)
    time = level.run.time
    default = f" (default: {seconds_text(time.value)} per iteration)" if time else ""
    panel.set_title(short(level.level, CHARACTERS) + default)


def _number(panel: Axes, row: int, mark: Mark, ends: tuple[float, float]) -> None:
    """The ratio in numbers, outside the panel on the right, where nothing covers it."""
    panel.annotate(
        ratio_text(mark.ratio.value),
        (ends[1], row),
        xytext=(4, 0),
        textcoords="offset points",
        annotation_clip=False,
        verticalalignment="center",
        fontsize=CAPTION_SIZE,
        fontweight="bold" if mark.certain else "normal",
    )


def _ticks(ends: tuple[float, float]) -> Locator:
    from matplotlib.ticker import FixedLocator

    if ends[1] / ends[0] > FAR_APART:
        return FixedLocator([2.0**power for power in range(-3, 4)])
    span = ends[1] - ends[0]
    step = next((one for one in STEPS if span / one <= MOST_TICKS), STEPS[-1])
    first, last = round(ends[0] / step) + 1, round(ends[1] / step)
    return FixedLocator([number * step for number in range(first, last + 1)])


def _formatter() -> Formatter:
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda value, _: f"{value:.3g}")


def _handles() -> Iterator[Artist]:
    from matplotlib.lines import Line2D

    for label, face, marker in (
        ("faster or slower, by two races", "#404040", "o"),
        ("same, unclear or refuted", "white", "o"),
        ("best combination", "#404040", "D"),
    ):
        yield Line2D(
            [],
            [],
            color="#404040",
            marker=marker,
            markerfacecolor=face,
            linewidth=1.2,
            label=label,
        )


def _caption(audit: Audit) -> Caption:
    workload = audit.workload
    step = "a training step" if workload.mode == "train" else "inference"
    sizes = " and ".join("x".join(map(str, item.shape[1:])) for item in workload.inputs)
    size = f"{step}, batch {workload.batch} of {sizes}, {workload.device}"
    lines = [f"{workload.model}, {size}: time with one choice changed over that without the change"]
    run = next((level.run for level in audit.levels), None)
    if run is not None:
        machine = run.environment
        gpu = f"{' or '.join(dict.fromkeys(machine.gpu))}; " if workload.device == "cuda" else ""
        threads = f"{workload.threads} thread{'s' if workload.threads != 1 else ''}"
        torch = machine.versions.get("torch", "?")
        lines.append(f"{gpu}{machine.cpu_model}, {threads}; torch {torch}; {audit.created[:10]}")
    remarks = [*_left_out(audit), *(["The audit was interrupted."] if audit.interrupted else [])]
    lines += [" ".join(remarks)] if remarks else []
    return Caption(
        [visible(line) for line in lines], [f"Precision {workload.precision}. {READING}"]
    )


def _left_out(audit: Audit) -> Iterator[str]:
    for level in audit.levels:
        name = short(level.level, CHARACTERS)
        timed = sum(price.effect is not None for price in level.prices)
        if timed > MOST_ROWS:
            yield f"{name}: {timed - MOST_ROWS} others are left out: the table has them."
        if not timed:
            yield f"{name}: no alternative was timed."

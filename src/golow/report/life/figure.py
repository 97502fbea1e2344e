"""The figure of a life cycle: total time over the number of iterations, a line per level, the lower
envelope with its break-even points and the level to use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from golow.programs.life.curve import HORIZON, Segment, envelope
from golow.programs.life.life_record import CacheState, LifeCycle
from golow.programs.life.stages import curves
from golow.report.console import visible
from golow.report.life.remarks import caches
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
from golow.report.units import count_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ONE_PANEL, PANEL = (6.0, 3.2), (3.5, 3.2)  # inches
POINTS = 8  # of a curve in each decade
BAND: dict[str, Any] = {"linewidth": 8.0, "alpha": 0.25, "solid_capstyle": "butt", "zorder": 1}
RULE = "#A0A0A0"
TICKS = 4
ROOM = 50.0  # above the highest curve, for the names, as a factor
APART = 2.2  # between two names, as a factor of iterations
READING = (
    "A process's time from its start to its end, including capture and build. "
    "Wide: the fastest level, named at the top with its first number of iterations. Cold: golow's "
    "cache was empty."
)


def write_figures(
    found: LifeCycle, folder: Path, formats: Sequence[Format] = ("svg",)
) -> list[Path]:
    """Draw the figure into the folder; returns the files.

    Raises `GolowError` without matplotlib or when the folder cannot be written.
    """
    return save_figure(life_figure(found), folder, "life", formats)


@drawing()
def life_figure(found: LifeCycle) -> Figure:
    """A panel for each state of the cache."""
    states = caches(found) or ("warm",)
    size = PANEL if len(states) > 1 else ONE_PANEL
    figure, drawn = panels(len(states), size, "iterations", "total time (s)")
    names = []
    for panel, cache in zip(drawn, states, strict=True):
        panel.set_title(f"total time, {cache} cache")
        names += _draw(panel, found, cache)
    every = [curve for cache in states for curve in curves(found, cache).values()]
    if every:  # the panels share their axes
        lowest = min(curve.total(1) for curve in every)
        drawn[0].set_ylim(lowest / 2, ROOM * max(curve.total(HORIZON) for curve in every))
    legend(figure, list(dict.fromkeys(names)))
    caption(figure, _caption(found))
    return figure


def _draw(panel: Axes, found: LifeCycle, cache: CacheState) -> list[str]:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    known = curves(found, cache)
    if not known:
        say(panel, "no life cycle was measured")
        return []
    panel.set(xscale="log", yscale="log", xlim=(1, HORIZON))
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_minor_formatter(NullFormatter())
    panel.xaxis.set_major_locator(LogLocator(numticks=TICKS))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count_text(value)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _up_text(value)))
    steps = _steps()
    segments = envelope(known)
    for segment in segments:
        part = [segment.begin, *(n for n in steps if segment.begin < n < segment.end), segment.end]
        totals = [known[segment.level].total(n) for n in part]
        panel.plot(part, totals, color=look(segment.level).colour, **BAND)
    for name, curve in known.items():
        colour, marker, line = look(name)
        totals = [curve.total(n) for n in steps]
        panel.plot(
            steps, totals, color=colour, linestyle=line, marker=marker, markevery=POINTS, zorder=2
        )
    place = 1.0
    for segment in segments:
        _name(panel, segment, min(max(place, segment.begin), HORIZON / APART))
        place = max(place, segment.begin) * APART
    return list(known)


def _name(panel: Axes, segment: Segment, place: float) -> None:
    """The level above its part of the envelope, and where it begins to be the fastest."""
    if segment.begin > 1:
        panel.axvline(segment.begin, color=RULE, linewidth=0.7, linestyle=(0, (2, 2)), zorder=0)
    at = f" from {count_text(segment.begin)}" if segment.begin > 1 else ""
    panel.text(
        place * 1.15,
        0.98,
        visible(f"{segment.level}{at}"),
        transform=panel.get_xaxis_transform(),
        rotation=90,
        verticalalignment="top",
        horizontalalignment="left",
        fontsize=6.5,
        color=look(segment.level).colour,
    )


def _steps() -> list[int]:
    """Numbers of iterations from 1 to the horizon, evenly on a logarithmic axis."""
    decades = len(str(HORIZON)) - 1
    return sorted({round(10 ** (i / POINTS)) for i in range(decades * POINTS + 1)})


def _caption(found: LifeCycle) -> Caption:
    workload, machine = found.workload, found.environment
    step = "a training step" if workload.mode == "train" else "inference"
    sizes = " and ".join("x".join(map(str, item.shape[1:])) for item in workload.inputs)
    what = (
        f"{workload.model}, {step}, batch {workload.batch} of {sizes or 'no input'}, "
        f"{workload.device}: total time of a process over its iterations"
    )
    threads = f"{workload.threads} thread{'s' if workload.threads != 1 else ''}"
    places = [f"{machine.cpu_model}, {threads}"]
    if workload.device == "cuda":
        places.insert(0, " or ".join(dict.fromkeys(machine.gpu)) or "a GPU")
    versions = [f"{n} {machine.versions[n]}" for n in ("torch", "golow") if n in machine.versions]
    where = "; ".join([*places, ", ".join(versions), found.created[:10]])
    missing = [
        f"{level.level} ({'failed' if level.failed else level.verdict})"
        for level in found.levels
        if level.failed or not level.lives
    ]
    lines = [what, where, *([f"No life cycle: {'; '.join(missing)}"] if missing else [])]
    return Caption([visible(line) for line in lines], [READING])


def _up_text(seconds: float) -> str:
    """A power of ten, never as 1e+06."""
    return count_text(seconds) if seconds >= 1 else f"{seconds:g}"

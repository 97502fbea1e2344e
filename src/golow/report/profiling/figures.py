"""The figures of a profile: what a step's time goes to at each level, and its operators.

``layer_figure.py`` has the third one. Colours of roles are those of `golow.report.style`'s palette
and lighter ones of the same hue, so that copies look alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from golow.programs.profiling.operators import OperatorTime
from golow.programs.profiling.profile_record import LevelProfile, Profile
from golow.programs.profiling.summary import ROLES
from golow.report.profiling.bars import (
    AXIS,
    NARROW_ROOM,
    TITLE,
    Bar,
    Scale,
    draw_bars,
    legend_patches,
    panel_title,
    short,
)
from golow.report.profiling.caption import captions
from golow.report.profiling.layer_figure import layers_figure
from golow.report.profiling.memory_figures import memory_figures
from golow.report.profiling.roofline import roofline_figures
from golow.report.style import Format, caption, drawing, legend_of, new_figure, save_figure, say

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROLE_COLOURS = dict(
    zip(
        ROLES,
        (
            *("#0072B2", "#E69F00", "#B8651B", "#F5CE85"),  # kernel, copies
            *("#882255", "#CC79A7", "#009E73", "#8FD0BB"),  # memset, synchronisation, calls
            *("#F0E442", "#56B4E9", "#C8C8C8"),  # data loading, operator, other
        ),
        strict=True,
    )
)
HOST, DEVICE = "#56B4E9", "#0072B2"
ROW = 0.22  # inches
MOST_OPERATORS, OPERATOR_COLUMNS = 8, 2
OPERATOR_CHARACTERS = 24


def write_figures(
    profiles: Sequence[Profile], folder: Path, formats: Sequence[Format] = ("svg",)
) -> list[Path]:
    """Draw all figures into the folder; returns the files.

    Raises `GolowError` without matplotlib or when the folder cannot be written.
    """
    drawn = figures(profiles)
    return [
        file
        for name, figure in drawn.items()
        for file in save_figure(figure, folder, name, formats)
    ]


def figures(profiles: Sequence[Profile]) -> dict[str, Figure]:
    """All figures of the profiles by name; profiles are those of one record."""
    return {
        "summary": summary_figure(profiles),
        "layers": layers_figure(profiles),
        "operators": operators_figure(profiles),
        **memory_figures(profiles),
        **roofline_figures(profiles),
    }


# ---------------------------------------------------------------- execution summary


@drawing()
def summary_figure(profiles: Sequence[Profile]) -> Figure:
    """One panel per precision and a bar per level, as long as its step without a profiler; the
    parts are the shares of the execution summary."""
    timed = [[level for level in profile.levels if level.time] for profile in profiles]
    rows = [max(1, len(levels)) for levels in timed]
    figure = new_figure(7.0, ROW * sum(rows) + TITLE * len(rows) + AXIS)
    column = figure.subplots(len(rows), 1, sharex=True, squeeze=False, height_ratios=rows)[:, 0]
    longest = [level.time.value for levels in timed for level in levels if level.time]
    scale = Scale.of(longest)
    for panel, profile, levels in zip(column, profiles, timed, strict=True):
        panel.set_title(f"precision {profile.workload.precision}")
        if levels:
            draw_bars(panel, [_summary_bar(level) for level in levels], scale)
        else:
            say(panel, "no level was timed")
    column[-1].set_xlabel(f"a step without a profiler ({scale.unit})")
    used = {part.role for levels in timed for level in levels for part in level.summary}
    legend_of(figure, legend_patches({r: ROLE_COLOURS[r] for r in ROLES if r in used}))
    how = "Length: the step without a profiler; parts: the shares of the profiled step."
    caption(figure, captions(profiles, "where a step's time goes", how))
    return figure


def _summary_bar(level: LevelProfile) -> Bar:
    seconds = level.time.value if level.time else 0.0
    shares = {part.role: part.share for part in level.summary if part.role in ROLE_COLOURS}
    parts = {role: shares[role] * seconds for role in ROLES if role in shares}
    pieces = [(ROLE_COLOURS[role], length) for role, length in parts.items()]
    if not pieces:
        return Bar(level.level, [("white", seconds)], note="no profile")
    return Bar(level.level, pieces)


# ---------------------------------------------------------------- operators


@drawing()
def operators_figure(profiles: Sequence[Profile]) -> Figure:
    """One panel per level and precision: the operators with the most time of their own, on the host
    and the device, and the rest."""
    shown = [
        (profile.workload.precision, level)
        for profile in profiles
        for level in profile.levels
        if level.operators
    ]
    columns = min(OPERATOR_COLUMNS, max(1, len(shown)))
    rows = -(-len(shown) // columns) or 1
    most = max((len(_operator_bars(level)) for _, level in shown), default=2)
    figure = new_figure(7.0, (ROW * most + 2 * TITLE + AXIS) * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel, (precision, level) in zip(panels, shown, strict=False):
        bars = _operator_bars(level)
        scale = Scale.of([bar.length for bar in bars], NARROW_ROOM)
        several = len(profiles) > 1
        panel.set_title(panel_title(level.level, precision if several else ""))
        draw_bars(panel, bars, scale, rows=most)
        panel.set_xlabel(f"self time in a step ({scale.unit})")
    for panel in panels[len(shown) :]:
        panel.set_visible(False)
    if not shown:
        panels[0].set_visible(True)
        say(panels[0], "no level has a profile")
    colours = {"on the host": HOST}
    if any(item.self_device for _, level in shown for item in level.operators):
        colours["on the device"] = DEVICE
    legend_of(figure, legend_patches(colours))
    what = "the operators with the most self time, under the profiler"
    caption(figure, captions(profiles, what, "Axes differ between panels."))
    return figure


def _operator_bars(level: LevelProfile) -> list[Bar]:
    """The longest operators, and all others as one."""
    ranked = sorted(level.operators, key=_own, reverse=True)
    bars = [
        Bar(
            short(f"{item.name} {item.shapes}".strip(), OPERATOR_CHARACTERS),
            [(HOST, item.self_host), (DEVICE, item.self_device)],
        )
        for item in ranked[:MOST_OPERATORS]
    ]
    rest = ranked[MOST_OPERATORS:]
    if rest:
        host, device = (sum(i.self_host for i in rest), sum(i.self_device for i in rest))
        bars.append(Bar(f"{len(rest)} others", [(HOST, host), (DEVICE, device)]))
    return bars


def _own(item: OperatorTime) -> float:
    return item.self_host + item.self_device

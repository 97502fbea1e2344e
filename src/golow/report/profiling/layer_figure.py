"""A profile's layers as bars: a row per layer, one panel per level, so that the same layer is
aligned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from golow.programs.profiling.profile_record import Profile
from golow.records.workload import LayerPhase
from golow.report.layers import PHASES, Column, layer_columns, layer_rows
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
from golow.report.style import caption, drawing, legend_of, new_figure, say

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PHASE_COLOURS: dict[LayerPhase, str] = {
    "forward": "#56B4E9",
    "backward": "#0072B2",
    "update": "#E69F00",
}
ROW, MOST_LAYERS = 0.18, 12  # inches; rows
MOST_COLUMNS, CHARACTERS = 4, 24


class Block(NamedTuple):
    """Up to `MOST_COLUMNS` levels of one precision, and the layers that they share."""

    precision: str
    columns: Sequence[Column]
    layers: Sequence[str]
    others: Sequence[str]


@drawing()
def layers_figure(profiles: Sequence[Profile]) -> Figure:
    """The layers that take the longest at any level, in order of execution, and the rest as one
    row; the pieces are the phases."""
    blocks = [block for profile in profiles for block in _blocks(profile)]
    if not blocks:
        figure = new_figure(7.0, 1.0)
        say(figure.subplots(), "no level has times by layer")
    else:
        figure = _draw(blocks, several=len(profiles) > 1)
    layers = [step for profile in profiles for level in profile.levels for step in level.layers]
    clock = "Timed one by one without a profiler"
    if any(step.kernels is not None for step in layers):
        clock = "By the time of their kernels where those are known"
    how = f"{clock}; all panels have the same axis. A layer without a bar runs as one step with an "
    how += "earlier one, or is not in that level."
    caption(figure, captions(profiles, "the layers that take the longest", how))
    return figure


def _draw(blocks: Sequence[Block], *, several: bool) -> Figure:
    heights = [ROW * _rows(block) for block in blocks]
    wide = max(len(block.columns) for block in blocks)
    figure = new_figure(7.0, sum(heights) + 2 * TITLE * len(blocks) + AXIS)
    grid = figure.subplots(len(blocks), wide, sharex=True, squeeze=False, height_ratios=heights)
    bars = [[_bars(block, column) for column in block.columns] for block in blocks]
    longest = [b.length for row in bars for panel in row for b in panel if b]
    scale = Scale.of(longest, NARROW_ROOM)
    for block, line, panels in zip(blocks, bars, grid, strict=True):
        for place, panel in enumerate(panels):
            panel.set_visible(place < len(line))
            if place < len(line):
                level = block.columns[place].level
                panel.set_title(panel_title(level, block.precision if several else ""))
                draw_bars(panel, line[place], scale, rows=_rows(block))
                _label(panel, block, first=place == 0)
    for panel in grid[-1]:
        panel.set_xlabel(f"time of a layer ({scale.unit})")
    used = {row.phase for block in blocks for column in block.columns for row in column.seconds}
    if used != {"forward"}:
        phases = {str(phase): PHASE_COLOURS[phase] for phase in PHASES if phase in used}
        legend_of(figure, legend_patches(phases))
    return figure


def _label(panel: Axes, block: Block, *, first: bool) -> None:
    names = [short(layer or "(top)", CHARACTERS) for layer in block.layers]
    if block.others:
        names.append(f"{len(block.others)} others")
    panel.set_yticks(range(len(names)), names if first else [""] * len(names))


def _blocks(profile: Profile) -> list[Block]:
    columns = layer_columns(profile.levels)
    everything = list(dict.fromkeys(row.module for row in layer_rows(columns)))
    longest = {
        layer: max(sum(_phases(c, [layer]).values()) for c in columns) for layer in everything
    }
    chosen = sorted(everything, key=lambda layer: longest[layer], reverse=True)[:MOST_LAYERS]
    layers = [layer for layer in everything if layer in chosen]
    others = [layer for layer in everything if layer not in chosen]
    left = iter(columns)
    parts = iter(lambda: list(islice(left, MOST_COLUMNS)), [])
    return [Block(profile.workload.precision, part, layers, others) for part in parts]


def _bars(block: Block, column: Column) -> list[Bar | None]:
    """None for a layer that the level has no time for."""
    groups = [[layer] for layer in block.layers]
    if block.others:
        groups.append(list(block.others))
    return [_bar(_phases(column, group)) for group in groups]


def _bar(phases: Mapping[LayerPhase, float]) -> Bar | None:
    pieces = [(PHASE_COLOURS[phase], phases[phase]) for phase in PHASES if phase in phases]
    return Bar("", pieces) if pieces else None


def _phases(column: Column, layers: Sequence[str]) -> dict[LayerPhase, float]:
    """Seconds of the layers in each phase."""
    found: dict[LayerPhase, float] = {}
    for row, seconds in column.seconds.items():
        if row.module in layers:
            found[row.phase] = found.get(row.phase, 0.0) + seconds
    return found


def _rows(block: Block) -> int:
    return len(block.layers) + bool(block.others)

"""The memory of a step as figures: bytes by category over time, and the map of a plan's arena."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from golow.programs.profiling.arena import ARENA
from golow.programs.profiling.memory import CATEGORIES, Block, MemoryProfile, timeline
from golow.programs.profiling.profile_record import Profile
from golow.records.workload import Workload
from golow.report.console import visible
from golow.report.style import (
    CAPTION_SIZE,
    Caption,
    caption,
    drawing,
    legend_of,
    new_figure,
)
from golow.report.units import bytes_text
from golow.worker.protocol import (
    GRADIENTS,
    INPUTS,
    OPTIMIZER_STATE,
    PARAMETERS,
    WORKSPACE,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

COLOURS = {
    PARAMETERS: "#0072B2",
    OPTIMIZER_STATE: "#56B4E9",
    GRADIENTS: "#E69F00",
    INPUTS: "#CC79A7",
    "other": "#999999",
    "activations": "#009E73",
    "temporary": "#D55E00",
    WORKSPACE: "#882255",
}
"""The colours of Okabe and Ito, as for the levels in `golow.report.style`."""

BYTES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))
TIMES = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
ROOM = 1.12  # height of an axis over its highest value
PHASE_WIDTH = 0.09  # of a phase's name, as a share of the panel
NAMED = 0.012  # share of an arena's map from which a buffer's name is written into it
CHARACTER = 0.0135  # width of a character of such a name, as a share of the map


def memory_figures(profiles: Sequence[Profile]) -> dict[str, Figure]:
    """A figure of the memory of every level, and one of the arena of a plan, by their names."""
    drawn: dict[str, Figure] = {}
    for profile in profiles:
        last = f"-{profile.workload.precision}" if len(profiles) > 1 else ""
        for level in profile.levels:
            if level.memory is None:
                continue
            name = f"{level.level.replace(':', '-')}{last}"
            drawn[f"memory-{name}"] = memory_over_time(level.level, level.memory, profile.workload)
            if _arena(level.memory):
                drawn[f"arena-{name}"] = arena_map(level.level, level.memory, profile.workload)
    return drawn


# ---------------------------------------------------------------- memory over time


class Held(NamedTuple):
    """Memory over a step, in the units that its axes name: the moments at which it changes, what
    each category holds from then on, the peak, and what is reserved, None if that is not known."""

    across: str
    up: str
    moments: list[float]
    categories: dict[str, list[float]]
    peak: tuple[float, float]
    reserved: float | None


def held_over_time(memory: MemoryProfile) -> Held:
    """Series of a figure of the level's memory; categories that hold nothing are left out."""
    points = list(timeline(memory.blocks, memory.length))
    points.append((memory.length, points[-1][1]))
    unit, size = _bytes_unit(max(memory.peak.bytes, memory.reserved or 0))
    label, scale = _time_axis(memory)
    shown = [name for name in CATEGORIES if any(held[name] for _, held in points)]
    return Held(
        across=label,
        up=f"memory ({unit})",
        moments=[_at(memory, moment) / scale for moment, _ in points],
        categories={name: [held[name] / size for _, held in points] for name in shown},
        peak=(_at(memory, memory.peak.moment) / scale, memory.peak.bytes / size),
        reserved=memory.reserved / size if memory.reserved else None,
    )


@drawing()
def memory_over_time(level: str, memory: MemoryProfile, workload: Workload) -> Figure:
    """Bytes of every category over the step, on top of one another, with the peak."""
    figure = new_figure(6.4, 3.2)
    panel = figure.subplots()
    held = held_over_time(memory)
    _, size = _bytes_unit(max(memory.peak.bytes, memory.reserved or 0))
    _, scale = _time_axis(memory)
    shown = list(held.categories)
    panel.stackplot(
        held.moments,
        list(held.categories.values()),
        colors=[COLOURS[name] for name in shown],
        step="post",
        linewidth=0,
    )
    _mark_peak(panel, memory, scale, size)
    highest = memory.peak.bytes
    if memory.reserved:
        highest = max(highest, memory.reserved)
        panel.axhline(memory.reserved / size, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
    panel.set(xlabel=held.across, ylabel=held.up, ylim=(0, ROOM * highest / size))
    panel.set_xlim(0, _at(memory, memory.length) / scale)
    _mark_phases(panel, memory, scale)
    legend_of(figure, _handles(shown))
    how = "The dot is the peak"
    if memory.reserved:
        how += f"; dashed: {bytes_text(memory.reserved)} reserved"
    caption(figure, _caption(level, workload, "bytes by category over one step", f"{how}."))
    return figure


def _mark_peak(panel: Axes, memory: MemoryProfile, scale: float, size: int) -> None:
    """A dot with the bytes beside it, on the side that has more room."""
    moment, highest = _at(memory, memory.peak.moment) / scale, memory.peak.bytes / size
    early = moment < _at(memory, memory.length) / scale / 2
    panel.plot([moment], [highest], color="black", marker="o", markersize=3.5, clip_on=False)
    panel.annotate(
        f"peak {bytes_text(memory.peak.bytes)}",
        (moment, highest),
        xytext=(5 if early else -5, 4),
        textcoords="offset points",
        horizontalalignment="left" if early else "right",
        fontsize=CAPTION_SIZE,
    )


def _mark_phases(panel: Axes, memory: MemoryProfile, scale: float) -> None:
    """Where the first allocation of each phase is; a name that has no room is left out."""
    whole = _at(memory, memory.length) / scale
    free = 0.0
    for phase in ("forward", "backward", "update"):
        begun = [block.first for block in memory.blocks if block.phase == phase]
        if not begun:
            continue
        moment = _at(memory, min(begun)) / scale
        panel.axvline(moment, color="#404040", linewidth=0.6, linestyle=(0, (1, 2)))
        place = min(moment, whole * (1 - PHASE_WIDTH))
        if place < free:
            continue
        free = place + whole * PHASE_WIDTH
        panel.annotate(
            phase,
            (place, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            fontsize=CAPTION_SIZE,
            color="#404040",
        )


# ---------------------------------------------------------------- the arena


@drawing()
def arena_map(level: str, memory: MemoryProfile, workload: Workload) -> Figure:
    """A rectangle per buffer of the arena: the steps in which it is in use, and its bytes."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    figure = new_figure(6.4, 3.6)
    panel = figure.subplots()
    blocks, whole = _arena(memory), memory.sizes.get(ARENA, 0)
    unit, size = _bytes_unit(whole)
    rectangles = [
        Rectangle(
            (block.first, (block.offset or 0) / size), block.last - block.first, block.bytes / size
        )
        for block in blocks
    ]
    colours = [COLOURS[block.category] for block in blocks]
    panel.add_collection(
        PatchCollection(rectangles, facecolor=colours, edgecolor="white", linewidth=0.25)
    )
    for block in blocks:
        _name(panel, block, memory.length, whole, size)
    panel.set(xlim=(0, memory.length), ylim=(0, ROOM * whole / size))
    panel.axhline(whole / size, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
    panel.set(xlabel="step of the plan", ylabel=f"offset in the arena ({unit})")
    shown = [name for name in CATEGORIES if any(block.category == name for block in blocks)]
    legend_of(figure, _handles(shown))
    beside = sum(size for place, size in memory.sizes.items() if place != ARENA)
    what = f"the buffers that share the arena of {bytes_text(whole)} (dashed)"
    how = f"Weights, state and inputs take another {bytes_text(beside)}."
    caption(figure, _caption(level, workload, what, how))
    return figure


def _name(panel: Axes, block: Block, length: float, whole: int, size: int) -> None:
    """Write a buffer's name into its rectangle if it fits."""
    width, height = (block.last - block.first) / length, block.bytes / whole / ROOM
    if width * height < NAMED or height < 0.04 or width < CHARACTER * len(block.name):
        return
    panel.text(
        (block.first + block.last) / 2,
        ((block.offset or 0) + block.bytes / 2) / size,
        block.name,
        color="white",
        fontsize=CAPTION_SIZE,
        horizontalalignment="center",
        verticalalignment="center",
    )


def _arena(memory: MemoryProfile) -> list[Block]:
    return [block for block in memory.blocks if block.place == ARENA]


# ---------------------------------------------------------------- what they share


def _handles(categories: Sequence[str]) -> list[Patch]:
    from matplotlib.patches import Patch

    return [Patch(color=COLOURS[name], label=name) for name in categories]


def _at(memory: MemoryProfile, moment: float) -> float:
    """A moment in seconds, or in steps of a plan without times."""
    return memory.seconds[int(moment)] if memory.seconds else moment


def _time_axis(memory: MemoryProfile) -> tuple[str, float]:
    """The label, and what a tick's number is multiplied by."""
    if memory.axis == "steps" and not memory.seconds:
        return "step of the plan", 1.0
    whole = _at(memory, memory.length)
    unit, scale = next((u for u in TIMES if whole >= u[1]), TIMES[-1])
    return f"time in the step ({unit})", scale


def _bytes_unit(size: int) -> tuple[str, int]:
    return next((u for u in BYTES if size >= u[1]), BYTES[-1])


def _caption(level: str, workload: Workload, what: str, how: str) -> Caption:
    kind = "training step" if workload.mode == "train" else "inference"
    where = f"{workload.model}, {kind}, batch {workload.batch}, {workload.device}"
    lines = [f"{level}: {what}", f"{where}, precision {workload.precision}"]
    return Caption([visible(line) for line in lines], [how])

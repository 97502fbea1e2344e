"""Horizontal stacked bars with their length in numbers, as all figures of a profile have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from golow.report.console import visible
from golow.report.style import CAPTION_SIZE
from golow.report.training.bars import UNITS
from golow.report.units import seconds_text

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

ROOM, NARROW_ROOM = 1.25, 1.55  # length of the axis over the longest bar: room for the numbers
TITLE, AXIS = 0.27, 0.62  # inches of a line of title and its padding, of ticks and label
EDGE = "#808080"
LONGEST_TITLE = 14


class Bar(NamedTuple):
    """A label, the colours and seconds of the pieces, and what stands behind the number."""

    label: str
    pieces: Sequence[tuple[str, float]]
    note: str = ""

    @property
    def length(self) -> float:
        """Seconds of all pieces."""
        return sum(seconds for _, seconds in self.pieces)


class Scale(NamedTuple):
    """The axis of one or several panels: its unit, the unit's seconds, and the axis' end in it."""

    unit: str
    size: float
    end: float

    @classmethod
    def of(cls, lengths: Sequence[float], room: float = ROOM) -> Scale:
        """A scale for bars of these seconds."""
        longest = max(lengths, default=0.0)
        unit, size = next((u for u in UNITS if longest >= u[1]), UNITS[-1])
        return cls(unit, size, room * longest / size or 1.0)


def draw_bars(
    panel: Axes, bars: Sequence[Bar | None], scale: Scale, *, rows: int = 0, labels: bool = True
) -> None:
    """The bars from the top, each followed by its seconds; None leaves its row empty. rows: as many
    as the panel has room for, so that bars of panels side by side are equally thick."""
    for row, bar in enumerate(bars):
        if bar is None:
            continue
        left = 0.0
        for colour, seconds in bar.pieces:
            length = max(0.0, seconds) / scale.size
            edge = EDGE if colour == "white" else "none"
            panel.barh(row, length, left=left, height=0.66, color=colour, edgecolor=edge)
            left += length
        number = seconds_text(bar.length) if bar.length else ""
        panel.annotate(
            " ".join(filter(None, (number, bar.note))),
            (left, row),
            xytext=(3, 0),
            textcoords="offset points",
            verticalalignment="center",
            fontsize=CAPTION_SIZE,
        )
    names = [visible(bar.label) if bar else "" for bar in bars]
    panel.set_yticks(range(len(bars)), names if labels else [""] * len(bars))
    panel.set_ylim(max(rows, len(bars)) - 0.4, -0.6)
    panel.set_xlim(0, scale.end)
    panel.grid(axis="y", visible=False)
    panel.tick_params(axis="y", length=0)


def legend_patches(colours: Mapping[str, str]) -> list[Artist]:
    """A handle per name, for a legend."""
    from matplotlib.patches import Patch

    return [Patch(color=colour, label=name) for name, colour in colours.items()]


def panel_title(level: str, precision: str) -> str:
    """The level and, unless it is empty, the precision; a long variant has a separate line."""
    level = visible(level)
    if len(level) > LONGEST_TITLE:
        level = level.replace(":", "\n:", 1)
    return f"{level}, {precision}" if precision else level


def short(name: str, characters: int) -> str:
    """The name, or both ends of a long one."""
    plain = visible(" ".join(name.split()))
    if len(plain) <= characters:
        return plain
    end = characters // 2
    return f"{plain[: characters - end - 2]}..{plain[-end:]}"

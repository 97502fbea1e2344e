"""The roofline as a figure: a dot per layer, phase and level, below the ceilings of the machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from golow.measure.peak import Peak
from golow.programs.profiling.profile_record import Profile
from golow.programs.profiling.roofline import LevelRoofline, RooflineDot, rooflines
from golow.report.profiling.bars import short
from golow.report.profiling.caption import captions
from golow.report.profiling.roofline_table import remarks, why_none
from golow.report.style import (
    CAPTION_SIZE,
    caption,
    drawing,
    legend_of,
    look,
    new_figure,
    say,
)
from golow.report.units import decimal_text

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 7.0, 4.2  # inches
SMALLEST, LARGEST = 8.0, 80.0  # area of a dot without time, and of the slowest, in square points
LABELLED, CHARACTERS = 3, 22  # layers of a level, and of a layer's name
ROOM = 3.3  # by how much the axes go beyond dots and ridge; at least a power of ten in all
SLOPE = 0.25  # share of the width that the slope has at least, so that its value fits beside it
ROOF_POINTS, LEADER_POINTS = 60, 12  # of a ceiling, and of a label's line
CHARACTER, LINE = 0.6, 1.35  # width and height of a letter, of the font's size
CLOSE, FARTHEST = 2.0, 60  # points between two labels, and from a dot to its label
INK = "#404040"


def roofline_figures(profiles: Sequence[Profile]) -> dict[str, Figure]:
    """One figure per precision, by its name; none for a profile without a roofline."""
    several = len(profiles) > 1
    return {
        f"roofline-{profile.workload.precision}" if several else "roofline": roofline_figure(
            profile
        )
        for profile in profiles
        if rooflines(profile)
    }


@drawing()
def roofline_figure(profile: Profile) -> Figure:
    """Operations per second over operations per byte, both on logarithmic axes. A dot's area grows
    with its share of the level's time; one of the backward pass is hollow."""
    found = [level for level in rooflines(profile) if level.dots]
    figure = new_figure(WIDTH, HEIGHT)
    panel = figure.subplots()
    if not found or profile.peak is None:
        say(panel, why_none(profile) if not rooflines(profile) else "no layer has a product")
        caption(figure, captions([profile], "the roofline"))
        return figure
    _draw_dots(panel, found)
    _draw_roof(panel, profile.peak)
    _name_axes(panel)
    legend_of(figure, list(_handles(found)))
    what = f"the roofline, precision {profile.workload.precision}"
    caption(figure, captions([profile], what, _how(profile), *_remarks(found)))
    figure.draw_without_rendering()  # fixes the panel in which labels have to fit
    for label in _labels(panel, found):
        label.draw(panel)
    return figure


def _how(profile: Profile) -> str:
    clock = "its kernels" if profile.workload.device == "cuda" else "its separate clock"
    hollow = "; hollow: backward" if profile.workload.mode == "train" else ""
    return (
        "Operations and bytes: the least that a layer needs in matrix products and convolutions; "
        f"time: of {clock}. A dot's area: its share of the level's time{hollow}. Lines: the "
        "machine's measured peaks."
    )


def _remarks(found: Sequence[LevelRoofline]) -> Iterator[str]:
    for level in found:
        for remark in remarks(level):
            yield f"{level.level}: {remark}"


# ---------------------------------------------------------------- dots and ceilings


def _draw_dots(panel: Axes, found: Sequence[LevelRoofline]) -> None:
    panel.set(xscale="log", yscale="log")
    most = max(dot.seconds / level.seconds for level in found for dot in level.dots)
    for level in found:
        colour, marker, _ = look(level.level)
        for dot in sorted(level.dots, key=attrgetter("seconds"), reverse=True):
            panel.scatter(
                [dot.intensity],
                [dot.rate],
                s=SMALLEST + (LARGEST - SMALLEST) * dot.seconds / level.seconds / most,
                marker=marker,
                facecolor=colour if dot.phase == "forward" else "none",
                edgecolor=colour,
                linewidth=0.9,
                zorder=3,
            )
    dots = [dot for level in found for dot in level.dots]
    ridge = dots[0].peak.operations / dots[0].peak.bytes
    across = [*(dot.intensity for dot in dots), ridge]
    upwards = [*(dot.rate for dot in dots), dots[0].peak.operations]
    right = max(across) * ROOM
    left = min(min(across) / ROOM, (ridge / right**SLOPE) ** (1 / (1 - SLOPE)))
    panel.set_xlim(left, right)
    lowest = min(min(upwards) / ROOM, left * dots[0].peak.bytes)
    panel.set_ylim(lowest, max(upwards) * ROOM)


def _draw_roof(panel: Axes, peak: Peak) -> None:
    """The two ceilings, each with its value above it, where no dot can be."""
    ridge = peak.operations / peak.bytes
    left, right = panel.get_xlim()
    panel.plot([left, ridge], [left * peak.bytes, peak.operations], color=INK, linewidth=1.0)
    panel.plot([ridge, right], [peak.operations] * 2, color=INK, linewidth=1.0)
    middle = (left * ridge) ** 0.5
    for text, place, side in (
        (decimal_text(peak.bytes, "B/s"), (middle, middle * peak.bytes), "right"),
        (decimal_text(peak.operations, "FLOP/s"), (right, peak.operations), "right"),
    ):
        panel.annotate(
            text,
            place,
            xytext=(-4, 3),
            textcoords="offset points",
            horizontalalignment=side,
            fontsize=CAPTION_SIZE,
            color=INK,
        )


def _name_axes(panel: Axes) -> None:
    """With ticks such as 10 and 100 GFLOP/s."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    panel.set(xlabel="operations per byte (FLOP/B)", ylabel="operations per second")
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(LogLocator(10))
        axis.set_minor_formatter(NullFormatter())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _rate_tick(value)))


def _rate_tick(rate: float) -> str:
    number, unit = decimal_text(rate, "FLOP/s").split()
    return f"{float(number):g} {unit}"


def _handles(found: Sequence[LevelRoofline]) -> Iterator[Artist]:
    from matplotlib.lines import Line2D

    for level in found:
        colour, marker, _ = look(level.level)
        yield Line2D([], [], color=colour, marker=marker, linestyle="none", label=level.level)


# ---------------------------------------------------------------- labels


class Box(NamedTuple):
    """A rectangle in points."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: Box) -> bool:
        """True if the two overlap, or nearly."""
        return (
            self.left < other.right + CLOSE
            and other.left < self.right + CLOSE
            and self.bottom < other.top + CLOSE
            and other.bottom < self.top + CLOSE
        )

    def within(self, other: Box) -> bool:
        """True if it is in the other one."""
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.bottom <= self.bottom
            and self.top <= other.top
        )


class Label(NamedTuple):
    """A dot's name, and where it stands: points from the dot to the text's lower left corner."""

    dot: RooflineDot
    text: str
    offset: tuple[float, float]

    def draw(self, panel: Axes) -> None:
        """With a thin line to its dot."""
        colour = look(self.dot.level).colour
        panel.annotate(
            self.text,
            (self.dot.intensity, self.dot.rate),
            xytext=self.offset,
            textcoords="offset points",
            fontsize=CAPTION_SIZE,
            color=colour,
            arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": colour, "shrinkB": 2},
            zorder=4,
        )


def _labels(panel: Axes, found: Sequence[LevelRoofline]) -> Iterator[Label]:
    """Labels of the slowest layers of each level, where they cover nothing. What has no room has no
    label: the table has it."""
    to_points = 72 / panel.figure.dpi
    frame = panel.get_window_extent()
    page = Box(*(float(edge) * to_points for edge in frame.extents))
    dots = [dot for level in found for dot in level.dots]
    places = panel.transData.transform([(dot.intensity, dot.rate) for dot in dots]) * to_points
    at = dict(zip(map(id, dots), places.tolist(), strict=True))
    signs = [_box_of(text, to_points) for text in panel.texts]
    signs += [Box(x, y, x, y) for x, y in _on_roof(panel, dots[0].peak, to_points)]
    taken = [*signs, *(Box(x - 3, y - 3, x + 3, y + 3) for x, y in at.values())]
    for level in found:
        for dot in sorted(level.dots, key=attrgetter("seconds"), reverse=True)[:LABELLED]:
            text = short(dot.layer or "(top)", CHARACTERS)
            x, y = at[id(dot)]
            for right, up in _offsets(text):
                box = _box(x + right, y + up, text)
                line = _line(x, y, box)
                if not box.within(page) or any(box.meets(other) for other in taken):
                    continue
                if not any(point.meets(sign) for point in line for sign in signs):
                    taken += [box, *line]
                    signs.append(box)
                    yield Label(dot, text, (right, up))
                    break


def _line(x: float, y: float, box: Box) -> list[Box]:
    """Points on the line from a dot to its label."""
    right, up = (box.left + box.right) / 2 - x, (box.bottom + box.top) / 2 - y
    steps = [step / LEADER_POINTS for step in range(LEADER_POINTS)]
    return [Box(x + s * right, y + s * up, x + s * right, y + s * up) for s in steps]


def _on_roof(panel: Axes, peak: Peak, to_points: float) -> Iterator[tuple[float, float]]:
    """Points along both ceilings, in points."""
    ridge = peak.operations / peak.bytes
    left, right = panel.get_xlim()
    for start, end in ((left, ridge), (ridge, right)):
        for step in range(ROOF_POINTS + 1):
            x = start * (end / start) ** (step / ROOF_POINTS)
            place = panel.transData.transform((x, min(peak.operations, x * peak.bytes)))
            yield float(place[0]) * to_points, float(place[1]) * to_points


def _offsets(text: str) -> Iterator[tuple[float, float]]:
    """Where a label may stand, the nearest first."""
    width = CHARACTER * CAPTION_SIZE * len(text)
    for distance in range(6, FARTHEST, 7):
        for up in (0, 0.5, -0.5, 1, -1):
            height = up * distance - CAPTION_SIZE / 2
            yield distance, height
            yield -distance - width, height
        yield -width / 2, distance
        yield -width / 2, -distance - CAPTION_SIZE


def _box(left: float, bottom: float, text: str) -> Box:
    width, height = CHARACTER * CAPTION_SIZE * len(text), LINE * CAPTION_SIZE
    return Box(left, bottom - 0.2 * height, left + width, bottom + 0.8 * height)


def _box_of(text: Artist, to_points: float) -> Box:
    return Box(*(float(edge) * to_points for edge in text.get_window_extent().extents))

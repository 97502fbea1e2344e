"""How figures look: a level's colour, marker and line, the same in every figure; legend, caption,
and saving so that equal records give equal files.

The colours are those of Okabe and Ito (2008), with wine red instead of their yellow, which is too
pale on paper. They can be told apart with each kind of colour blindness, and the markers work
without colour. A variant (``compile:freezing``) has its level's marker in another shade of its
colour, with another line style.
"""

from __future__ import annotations

import colorsys
import io
import math
import textwrap
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from golow.records.errors import GolowError
from golow.storage.files import write_whole, writing
from golow.storage.names import file_name

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

Format = Literal["svg", "png", "pdf"]
Line = Literal["-"] | tuple[int, tuple[int, ...]]

# Colour and marker of each level. onednn and cudnn are the same level on different hardware.
LEVELS = {
    "eager": ("#000000", "o"),
    "torchscript": ("#56B4E9", "s"),
    "compile": ("#E69F00", "^"),
    "cudagraph": ("#CC79A7", "D"),
    "aotinductor": ("#553300", "d"),
    "libtorch": ("#0072B2", "v"),
    "onednn": ("#D55E00", "X"),
    "cudnn": ("#D55E00", "X"),
    "onnxruntime": ("#009E73", "P"),
    "openvino": ("#882255", "*"),
    "tensorrt": ("#000077", "p"),
    "executorch": ("#BB55FF", "D"),
    "tvm": ("#886633", "v"),
    "iree": ("#330044", "^"),
    "jax": ("#999933", "H"),
    "tensorflow": ("#7700DD", "p"),
    "paddle": ("#99CC88", "h"),
}
LIGHTNESSES = (0.55, 0.33, 0.7, 0.62, 0.38, 0.25)
"""Lightness of a variant's shade, in the order in which they are given out."""
APART = 0.06  # of two shades' lightness, at least
OTHER_COLOUR, OTHER_MARKERS = "#707070", ("<", ">", "h", "8")
VARIANTS: dict[str, Line] = {
    "channels_last": (0, (5, 2)),
    "freezing": (0, (5, 2)),
    "autotune": (0, (5, 2)),
    "max-autotune": (0, (3, 1, 1, 1)),
    "cudagraph": (0, (1, 2)),
    "cudagraphs": (0, (1, 1)),
    "freezing-cudagraphs": (0, (3, 1, 1, 1, 1, 1)),
}

STYLE = {
    "font.family": "DejaVu Sans",  # ships with matplotlib, so text looks the same everywhere
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E0E0E0",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "lines.markersize": 4,
    "savefig.dpi": 200,
    "text.parse_math": False,  # names of classes and files may contain dollar signs
    "svg.fonttype": "none",  # text that can be found, read aloud and edited
    "svg.hashsalt": "golow",
}
# Removes the creation time that matplotlib writes by default.
METADATA: dict[Format, dict[str, Any]] = {
    "svg": {"Date": None},
    "png": {},
    "pdf": {"CreationDate": None},
}
# The field of the file that has the whole caption.
DESCRIPTION: dict[Format, str] = {"svg": "Description", "png": "Description", "pdf": "Subject"}

CAPTION_SIZE = 6.5
# Text sizes in inches: a figure grows by its caption and legend, so that panels keep their size.
CAPTION_LINE, LEGEND_LINE = 0.125, 0.17
CAPTION_CHARACTER, LEGEND_CHARACTER, LEGEND_HANDLE = 0.053, 0.066, 0.65


class Look(NamedTuple):
    """How a level is drawn: a colour, a marker, and matplotlib's name or dashes of a line."""

    colour: str
    marker: str
    line: Line


def look(level: str) -> Look:
    """The level's look, which depends only on its name; a user's own levels are grey. With several
    contexts, as ``onednn x2``, it is a separate variant."""
    name, _, variant = level.replace(" ", ":").partition(":")
    draw = zlib.crc32(level.encode())
    other = (OTHER_COLOUR, OTHER_MARKERS[draw % len(OTHER_MARKERS)])
    colour, marker = LEVELS.get(name, other)
    if not variant:
        return Look(colour, marker, "-")
    names = list(VARIANTS)
    place = names.index(variant) if variant in VARIANTS else draw % len(names)
    return Look(_shade(colour, place), marker, VARIANTS[names[place]])


def _shade(colour: str, place: int) -> str:
    """Another shade of the colour: the one of that place among those that differ from it."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    hue, own, saturation = colorsys.rgb_to_hls(red, green, blue)
    others = [one for one in LIGHTNESSES if abs(one - own) > APART]
    parts = colorsys.hls_to_rgb(hue, others[place % len(others)], saturation)
    return "#" + "".join(f"{round(255 * part):02X}" for part in parts)


@contextmanager
def drawing() -> Iterator[None]:
    """matplotlib's defaults with golow's style, ignoring the user's settings, which are restored
    afterwards. Raises `GolowError` without matplotlib."""
    try:
        from matplotlib import style
    except ImportError as error:
        raise GolowError(
            "figures need matplotlib, which is not installed", "pip install 'golow[figures]'"
        ) from error
    with style.context(["default", STYLE]):
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that size in inches, with a layout that makes room for all labels."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
    return Figure(figsize=(width, height), layout=layout)


def panels(
    count: int, size: tuple[float, float], x_label: str, y_label: str
) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels of that size in inches, up to three in a row, with shared axes;
    only the outer ones are labelled."""
    columns = 2 if count == 4 else min(3, max(1, count))
    rows = math.ceil(max(1, count) / columns)
    figure = new_figure(columns * size[0], rows * size[1])
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    axes = list(grid.flat)
    for position, panel in enumerate(axes):
        panel.set_visible(position < count)
        if position + columns >= count:
            panel.set_xlabel(x_label)
            panel.tick_params(labelbottom=True)
        if position % columns == 0:
            panel.set_ylabel(y_label)
    return figure, axes[:count]


def say(panel: Axes, text: str) -> None:
    """Write into an empty panel why it is empty; ticks shared with other panels are kept."""
    if len(panel.get_shared_x_axes().get_siblings(panel)) == 1:
        panel.set(xticks=[], yticks=[])
    panel.text(
        0.5,
        0.5,
        textwrap.fill(text, 40),
        transform=panel.transAxes,
        horizontalalignment="center",
        verticalalignment="center",
        color="#606060",
    )


def legend(figure: Figure, levels: Sequence[str]) -> None:
    """The levels' lines and names above the panels, in as many columns as fit."""
    legend_of(figure, [level_handle(level) for level in levels])


def legend_of(figure: Figure, handles: Sequence[Artist]) -> None:
    """The handles and their labels above the panels, in as many columns as fit."""
    if not handles:
        return
    entry = LEGEND_CHARACTER * max(len(str(h.get_label())) for h in handles) + LEGEND_HANDLE
    rows = math.ceil(len(handles) / max(1, int(figure.get_figwidth() / entry)))
    columns = math.ceil(len(handles) / rows)
    _grow(figure, LEGEND_LINE * rows)
    figure.legend(handles=list(handles), loc="outside upper left", ncols=columns)


def level_handle(level: str) -> Line2D:
    """The level's line and name, for a legend."""
    from matplotlib.lines import Line2D

    colour, marker, line = look(level)
    return Line2D([], [], color=colour, marker=marker, linestyle=line, label=level)


class Caption(NamedTuple):
    """lines: what is shown, where and when it was measured, and in a third line what is missing, if
    anything is. details: how it was measured and how to read it."""

    lines: Sequence[str]
    details: Sequence[str] = ()


def caption(figure: Figure, found: Caption) -> None:
    """The lines below the panels, each cut where the figure ends; they and the details are whole in
    the metadata of the figure's file."""
    width = int(figure.get_figwidth() / CAPTION_CHARACTER)
    lines = [textwrap.shorten(line, width, placeholder=" ...") for line in found.lines]
    _grow(figure, CAPTION_LINE * len(lines))
    figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=CAPTION_SIZE, linespacing=1.35)
    figure.set_label("\n".join([*found.lines, *found.details]))  # nothing draws it


def description(figure: Figure) -> str:
    """The whole caption, a paragraph per line."""
    return str(figure.get_label())


def _grow(figure: Figure, inches: float) -> None:
    figure.set_figheight(figure.get_figheight() + inches)


@drawing()
def save_figure(figure: Figure, folder: Path, name: str, formats: Sequence[Format]) -> list[Path]:
    """Write the figure into the folder, one file per format, each whole or not at all.

    The same figure gives the same bytes. Raises `GolowError` when the folder cannot be written or
    the format is unknown.
    """
    files = []
    for kind in formats:
        if kind not in METADATA:
            raise GolowError(f"figures cannot be written as {kind}", f"use {', '.join(METADATA)}.")
        data = io.BytesIO()
        described = {DESCRIPTION[kind]: description(figure)} if description(figure) else {}
        figure.savefig(data, format=kind, metadata={**METADATA[kind], **described})
        path = folder / f"{file_name(name)}.{kind}"
        write_file(path, data.getvalue())
        files.append(path)
    return files


def write_file(path: Path, data: bytes) -> None:
    """Write the file whole, creating its folders; raises `GolowError` if that fails."""
    with writing(path, "free some space or name another folder."):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)

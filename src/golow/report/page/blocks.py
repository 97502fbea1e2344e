"""Elements of a page: sections of blocks, as plain data that JSON can hold.

Python writes every text and number; the page's scripts place them, sort, filter and draw. They know
blocks and nothing of golow's records, so that a new view needs no new script.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from golow.report.console import visible
from golow.report.style import look

Block = dict[str, Any]

DARKEST = 80  # luma out of 255 that is seen on a dark page
PALER = 0.45  # of the way to white, for what is darker
DISTURBED, THROTTLED = "disturbed", "throttled"
BROKEN = re.compile(r"\n +")  # a name in a narrow column
NUMBER = re.compile(r"([+-]?\d[\d,]*\.?\d*(?:e[+-]?\d+)?)\s*([A-Za-z%]*)")
UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "%": 0.01,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
}


def section(
    identity: str, title: str, blocks: Iterable[Block], parts: Mapping[str, Sequence[Block]] = {}
) -> Block:
    """A part of the page with its title; the identity is its anchor. parts: by their names, unique
    in the page, blocks that cells open."""
    made = {"id": identity, "title": visible(title), "blocks": list(blocks)}
    return {**made, "parts": {name: list(part) for name, part in parts.items()}} if parts else made


def paragraph(text: str, *, style: str = "") -> Block:
    """style: ``lead`` for the answer, ``note`` for what is secondary, ``caption`` above others."""
    return {"kind": "paragraph", "text": visible(text), "style": style}


def code(text: str) -> Block:
    """Lines to paste, or a log."""
    return {"kind": "code", "text": visible(text)}


def facts(pairs: Iterable[tuple[str, str]]) -> Block:
    """Names and what they are."""
    return {"kind": "facts", "pairs": [[visible(name), visible(text)] for name, text in pairs]}


def column(title: str, *, number: bool = True, key: str = "", lead: bool = False) -> dict[str, Any]:
    """number: aligned to the right and sorted by number. key: the colour that stands for it. lead:
    first and large on a card."""
    return {"title": visible(title), "number": number, "key": key, "lead": lead}


def cell(text: str, order: float | None = None, **more: Any) -> dict[str, Any]:
    """One cell. order: what it is sorted by, unless by its text. more: ``bar`` (value, low, high
    and limit as shares of the longest), ``stack`` (its parts, each with a share), ``heat`` (a
    share), ``colour``, ``word`` (how it is tinted), ``peek`` (blocks that the pointer or the
    keyboard shows beside it), ``opens`` (the name of a part), ``edges`` (sides with a line)."""
    return {"text": visible(text), "order": order, **more}


def table(
    caption: str,
    columns: Sequence[dict[str, Any]],
    rows: Iterable[Sequence[dict[str, Any]]],
    details: Sequence[Sequence[Block]] = (),
    *,
    filtered: bool = False,
    cards: bool = False,
) -> Block:
    """Columns and rows. details: what opens below each row; none if there are none. filtered: with
    a field for words, also if it is short. cards: on a phone each row is a card."""
    return {
        "kind": "table",
        "caption": visible(caption),
        "columns": list(columns),
        "rows": [list(row) for row in rows],
        "details": [list(blocks) for blocks in details],
        "filtered": filtered,
        "cards": cards,
    }


def tree(
    caption: str,
    columns: Sequence[dict[str, Any]],
    rows: Iterable[Sequence[dict[str, Any]]],
    parents: Sequence[int | None],
    opened: Iterable[int],
) -> Block:
    """A table whose rows hang below one another. parents: the number of each row's parent, None for
    a root. opened: the numbers of the rows that are open at first."""
    hanging = {"parents": list(parents), "opened": list(opened), "filtered": True}
    return {**table(caption, columns, rows), **hanging}


def table_of(shown: Table, caption: str) -> Block:
    """A table of the terminal, with its cells' texts as they are there, except that names are not
    broken. A title has two lines where the cells have."""
    texts = [[BROKEN.sub("", _text(found)) for found in one.cells] for one in shown.columns]
    columns = [
        column(_title(one.header, cells), number=one.justify == "right")
        for one, cells in zip(shown.columns, texts, strict=True)
    ]
    rows = ([cell(text, order_of(text)) for text in row] for row in zip(*texts, strict=True))
    return table(caption, columns, rows)


def _title(header: Any, cells: Sequence[str]) -> str:
    lines = _text(header).split("\n")
    return ("\n" if any("\n" in text for text in cells) else " ").join(lines)


def order_of(text: str) -> float | None:
    """Sort key of a text that begins with a number and a unit; None for other texts."""
    found = NUMBER.match(text)
    return float(found[1].replace(",", "")) * UNITS.get(found[2], 1.0) if found else None


def side_by_side(parts: Iterable[Block]) -> Block:
    """Blocks beside one another, as far as there is room."""
    return {"kind": "beside", "blocks": list(parts)}


def choice(title: str, options: Iterable[tuple[str, Block]], first: int = 0) -> Block:
    """One of several blocks, which the reader chooses. first: the number of the one at first."""
    shown = [{"name": visible(name), "block": block} for name, block in options]
    return {"kind": "choice", "title": visible(title), "options": shown, "first": first}


def surface(
    title: str,
    axes: tuple[str, str, str],
    places: tuple[Sequence[int], Sequence[int]],
    ticks: Iterable[tuple[float, str]],
    levels: Iterable[tuple[str, Iterable[Iterable[tuple[float | None, str]]]]],
    *,
    logarithmic: bool,
) -> Block:
    """Surfaces over two axes, to turn. axes: across, deep, up. places: the numbers on the first
    two, on which the axes are logarithmic. ticks: heights with their texts. levels: name, and by
    deep and across the height and its text. logarithmic: the heights."""
    return {
        "kind": "surface",
        "title": visible(title),
        "axes": [visible(axis) for axis in axes],
        "places": [list(axis) for axis in places],
        "ticks": [[value, visible(text)] for value, text in ticks],
        "logUp": logarithmic,
        "levels": [
            {
                "name": visible(name),
                "colour": level_colour(name),
                "values": [[list(pair) for pair in row] for row in rows],
            }
            for name, rows in levels
        ],
    }


def pictures(title: str, shown: Iterable[tuple[tuple[int, int, int], bytes, str]]) -> Block:
    """Images with their texts. shown: channels (1 or 3), height and width; the pixels in this
    order; the text below."""
    made = [
        {"shape": list(shape), "pixels": b64encode(pixels).decode(), "text": visible(text)}
        for shape, pixels, text in shown
    ]
    return {"kind": "pictures", "title": visible(title), "pictures": made}


def folded(title: str, parts: Iterable[Block]) -> Block:
    """Blocks that are shown when the title is clicked, and on paper."""
    return {"kind": "folded", "title": visible(title), "blocks": list(parts)}


def chart(
    title: str,
    across: str,
    up: str,
    lines: Iterable[dict[str, Any]],
    *,
    from_zero: bool = True,
    small: bool = False,
) -> Block:
    """Lines over an axis. across, up: the axes' names with units. small: half as wide."""
    names = {"title": visible(title), "across": visible(across), "up": visible(up)}
    sizes = {"fromZero": from_zero, "small": small}
    return {"kind": "chart", **names, "lines": list(lines), **sizes}


def line(
    name: str,
    points: Iterable[tuple[float, float]],
    band: Iterable[tuple[float, float, float]] = (),
    marked: Mapping[int, str] = {},
    *,
    colour: str = "",
    plain: bool = False,
) -> dict[str, Any]:
    """One line. band: x, low, high. marked: by their numbers, the points that are drawn hollow, and
    why; `THROTTLED` ones are square. plain: without dots."""
    return {
        "name": visible(name),
        "colour": colour or level_colour(name),
        "dashed": ":" in name,
        "points": [list(point) for point in points],
        "band": [list(part) for part in band],
        "marked": {str(number): visible(why) for number, why in marked.items()},
        "plain": plain,
    }


def curves(
    title: str,
    axes: Sequence[str],
    up: str,
    lines: Iterable[dict[str, Any]],
    shown: Iterable[str],
) -> Block:
    """Lines over one of several axes, which the reader chooses. Their names and groups can be
    switched; only those of the groups in ``shown`` are there at first."""
    return {
        "kind": "curves",
        "title": visible(title),
        "axes": [visible(axis) for axis in axes],
        "up": visible(up),
        "lines": list(lines),
        "shown": [visible(group) for group in shown],
    }


def curve(
    name: str,
    group: str,
    places: Sequence[Iterable[float]],
    values: tuple[Iterable[float], Iterable[float], Iterable[float]],
) -> dict[str, Any]:
    """One line of `curves`. places: of its points on each axis. values: theirs, the low and the
    high ends of their band. NaN leaves a point out."""
    middle, low, high = (list(map(float, part)) for part in values)
    return {
        **line(name, ()),
        "group": visible(group),
        "places": [list(map(float, axis)) for axis in places],
        "values": middle,
        "low": low,
        "high": high,
    }


def dots(
    name: str,
    points: Iterable[tuple[float, float]],
    sizes: Iterable[float],
    texts: Iterable[str],
    marked: Mapping[int, str] = {},
) -> dict[str, Any]:
    """Dots without a line. sizes: their radius in pixels. texts: what each states. marked: as of a
    line."""
    made = line(name, points, marked=marked)
    return {**made, "sizes": list(sizes), "texts": [visible(text) for text in texts]}


def area(
    title: str,
    axes: tuple[str, str],
    moments: Iterable[float],
    parts: Iterable[tuple[str, str, Iterable[float]]],
    *,
    mark: tuple[float, float, str] | None = None,
    limit: tuple[float, str] | None = None,
) -> Block:
    """Parts on top of one another; each value holds from its moment on. axes: across, up. parts:
    name, colour, values. mark: a point with its text. limit: a dashed height with its text."""
    return {
        "kind": "area",
        "title": visible(title),
        "across": visible(axes[0]),
        "up": visible(axes[1]),
        "moments": list(moments),
        "parts": [
            {"name": visible(name), "colour": colour, "values": list(values)}
            for name, colour, values in parts
        ],
        "mark": mark,
        "limit": limit,
    }


def flame(title: str, rows: Iterable[Iterable[tuple[float, float, str, str]]]) -> Block:
    """Boxes below one another, the outermost first: each from a share of the width to another one,
    with its colour and its text."""
    shown = [
        [
            {"from": a, "to": b, "colour": colour, "text": visible(text)}
            for a, b, colour, text in row
        ]
        for row in rows
    ]
    return {"kind": "flame", "title": visible(title), "rows": shown}


def level_colour(level: str) -> str:
    """As in every figure, except that eager has the colour of text, which is black on paper, and
    that what is too dark to be seen on a dark page is lighter there."""
    colour = look(level).colour
    if colour == "#000000":
        return "currentColor"
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    if 0.2126 * red + 0.7152 * green + 0.0722 * blue >= DARKEST:
        return colour
    paler = "".join(f"{round(part + PALER * (255 - part)):02X}" for part in (red, green, blue))
    return f"light-dark({colour}, #{paler})"


def _text(found: Any) -> str:
    return found.plain if isinstance(found, Text) else Text.from_markup(str(found)).plain

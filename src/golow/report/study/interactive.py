"""A study as one interactive page: maps, lines and surfaces to choose from, with all numbers of a
cell under the pointer. The file includes Plotly and makes no network requests."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from golow.records.errors import GolowError
from golow.report.published import PublishedGrid
from golow.report.study.caption import captions
from golow.report.study.measures import TIME
from golow.report.study.planes import Plane, place_text, planes, published_plane
from golow.report.study.rows import StudyRow
from golow.report.study.traces import Hover, Views, views
from golow.report.style import write_file


def write_page(rows: Sequence[StudyRow], file: Path, paper: PublishedGrid | None = None) -> Path:
    """Write the page for these rows; equal rows give an equal file. Raises `GolowError` without
    Plotly, or if the file cannot be written."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise GolowError(
            "the interactive page needs Plotly, which is not installed",
            "pip install 'golow[interactive]', or leave html out of the formats.",
        ) from error
    template = (Path(__file__).parent / "page.html").read_text()
    parts = {"PLOTLY": get_plotlyjs(), **_parts(rows, paper)}
    page = re.sub("@([A-Z]+)@", lambda found: parts[found[1]], template)
    write_file(file, page.encode())
    return file


def _parts(rows: Sequence[StudyRow], paper: PublishedGrid | None) -> dict[str, str]:
    """The values of the template's placeholders: the figures by plane, view and choice, the texts
    that they refer to by number, and the captions."""
    hover = Hover()
    figures: dict[str, Views] = {}
    told: dict[str, list[str]] = {}
    for plane in planes(rows):
        under = published_plane(paper, plane)
        figures[_title(plane)] = views(plane, under, hover)
        shown = paper if under else None
        what = "measured values, and times relative to eager in the same rounds"
        found = captions(plane, what, f"{TIME.title}: {TIME.how(plane.rows)}", TIME, shown)
        told[_title(plane)] = [*found.lines, *found.details]
    title = html.escape(f"golow study {rows[0].study}" if rows else "golow study")
    return {
        "TITLE": title,
        "FIGURES": _in_script(figures),
        "HOVER": _in_script(hover.texts),
        "CAPTIONS": _in_script(told),
    }


def _title(plane: Plane) -> str:
    return ", ".join(place_text(axis, place) for axis, place in plane.fixed.items())


def _in_script(data: Any) -> str:
    """JSON for a script element, which a ``<`` in a level's name or reason could otherwise end."""
    return msgspec.json.encode(data).decode().replace("<", "\\u003c")

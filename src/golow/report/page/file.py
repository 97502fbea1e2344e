"""The file: one HTML page with its scripts, its style and the record that it shows.

The record is in it as JSON in which no character can end a script. `unpacked` reads it back
without executing anything: it is found by its marks, and its names are checked before any is
written.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from golow.records.errors import GolowError
from golow.report.console import visible
from golow.report.style import write_file
from golow.storage.files import is_file, read_text, writing
from golow.storage.full_disk import TEMPORARY_HINT
from golow.storage.scratch import scratch_folder

SCRIPTS = (
    "dom",
    "table",
    "chart",
    "curves",
    "surface",
    "area",
    "flame",
    "peek",
    "slider",
    "pictures",
    "page",
)
MARK = re.compile(r'<script type="application/json" id="golow-record">(.*?)</script>', re.DOTALL)
ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
SURROGATE = re.compile("[\ud800-\udfff]")
MOST_BYTES = 1 << 28
Records = Mapping[str, Mapping[str, str]]
"""The files of each record as text, by the record's name and then by their path in it."""


def write_page(
    title: str, sections: list[Any], records: Records, file: Path, *, kinds: str = ""
) -> Path:
    """Write the page; raises `GolowError` if it cannot be written. Equal records give equal
    files.

    title: what the page is about; what follows a first comma is smaller. kinds: of its records.
    """
    name, _, about = visible(title).partition(", ")
    style, script = _asset("style.css"), "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    parts = {
        "TITLE": escape(visible(title)),
        "STYLE_HASH": _digest(style),
        "SCRIPT_HASH": _digest(script),
        "STYLE": style,
        "SCRIPT": script,
        "VIEW": _json({"title": name, "about": about, "kinds": kinds, "sections": sections}),
        "RECORD": _json(records),
    }
    page = re.sub(r"@@(\w+)@@", lambda found: parts[found[1]], _asset("page.html"))
    write_file(file, page.encode())
    return file


def is_page(place: Path) -> bool:
    """True if it is a file with the name of a page."""
    return place.suffix.lower() in (".html", ".htm") and is_file(place)


@contextmanager
def unpacked(page: Path) -> Iterator[list[Path]]:
    """The folders of the records in the page, by their names, while the block runs.

    Raises `GolowError` for a file that is not a golow page or is damaged.
    """
    records = _records_in(page)
    with scratch_folder() as folder:
        places = [folder / str(number) / _name(record) for number, record in enumerate(records)]
        for place, contents in zip(places, records.values(), strict=True):
            with writing(f"the record in {page}, unpacked to {folder},", TEMPORARY_HINT):
                _unpack(contents, place)
        yield places


def _unpack(contents: Mapping[str, str], place: Path) -> None:
    for name, text in contents.items():
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def _records_in(page: Path) -> dict[str, dict[str, str]]:
    text = read_text(page, "give a page that golow report wrote.", MOST_BYTES)
    found = MARK.search(text)
    try:
        records = json.loads(found[1]) if found else None
    except (ValueError, RecursionError) as error:
        raise GolowError(f"{page} contains a corrupt record: {error}") from error
    if not isinstance(records, dict) or not records:
        raise GolowError(f"{page} is not a golow report", "give a page that golow report wrote.")
    for record, contents in records.items():
        sound = isinstance(contents, dict) and all(_is_sound(*entry) for entry in contents.items())
        if not sound or not _is_sound(_name(record), "") or "/" in record:
            raise GolowError(f"{page} contains a corrupt record (expected file names and text)")
    return records


def _name(record: str) -> str:
    """The record's own name, without its number in the page."""
    return record.partition("-")[2] or record


def _is_sound(name: str, text: Any) -> bool:
    """True if it is a file inside its folder, with text."""
    path = PurePosixPath(name)
    inside = name.isprintable() and name == str(path) and not {".", "..", "/"} & set(path.parts)
    return inside and isinstance(text, str) and not SURROGATE.search(text)


def _json(value: Any) -> str:
    text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&\u2028\u2029]", lambda found: ESCAPES[found[0]], text)


def _finite(value: Any) -> Any:
    """JSON has no infinity; what is not finite is sorted last."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _asset(name: str) -> str:
    return (files("golow.report.page") / "assets" / name).read_text(encoding="utf-8")

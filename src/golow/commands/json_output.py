"""The option ``--json``: a record to a file, or with ``-`` alone to standard output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

from golow.records.record import Record, encode
from golow.storage.files import require_place, write_whole, writing

PIPE = "-"


def require_json(json: str | None) -> None:
    """Raise `GolowError` now, rather than after minutes, if that file cannot be written."""
    if json not in (None, PIPE):
        require_place(Path(json))


def write_json(record: Record, json: str | None) -> None:
    """Write the record if it was requested."""
    if json == PIPE:
        sys.stdout.buffer.write(encode(record))
        sys.stdout.flush()
    elif json is not None:
        with writing(json, "name another file."):
            write_whole(Path(json), encode(record))


def beside_json(json: str | None) -> TextIO:
    """The stream for what else is said."""
    return sys.stderr if json == PIPE else sys.stdout

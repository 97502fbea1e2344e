"""The folders of data sets and prepared files."""

from __future__ import annotations

import os
from pathlib import Path

from golow.records.errors import GolowError


def data_root(given: Path | None, cache: Path) -> Path:
    """The folder of the publishers' files: as given, or ``$GOLOW_DATA``, or one in the cache."""
    named = given or os.environ.get("GOLOW_DATA")
    return expanded(Path(named)) if named else cache / "data" / "raw"


def expanded(path: Path) -> Path:
    """The path with the user's home for ``~``; raises `GolowError` for an unknown user's."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise GolowError(f"{path} names the home folder of an unknown user") from error


def prepared_folder(cache: Path) -> Path:
    """The folder of the files that `golow.data.prepare` writes."""
    return cache / "data"


def prepared_files(cache: Path) -> list[Path]:
    """The prepared files, without unfinished ones, whose names begin with a dot."""
    found = prepared_folder(cache).glob("*.safetensors")
    return sorted(file for file in found if not file.name.startswith("."))

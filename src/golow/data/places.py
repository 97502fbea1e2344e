"""The folders of data sets and prepared files."""

from __future__ import annotations

import os
from pathlib import Path

from golow.records.errors import GolowError
from golow.storage.files import require_no_file


def data_root(given: Path | None, cache: Path) -> Path:
    """The folder of the publishers' files: as given, or ``$GOLOW_DATA``, or one in the cache. It
    may not exist yet; raises `GolowError` for a file."""
    named = given or os.environ.get("GOLOW_DATA")
    if not named:
        return cache / "data" / "raw"
    root = expanded(Path(named))
    require_no_file(root, "name a folder that holds data sets: --data-root, or GOLOW_DATA.")
    return root


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

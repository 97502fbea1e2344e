"""Where data sets and prepared files lie."""

from __future__ import annotations

import os
from pathlib import Path


def default_cache() -> Path:
    """Where golow keeps what it has made: ``$GOLOW_CACHE``, or its folder in the user's cache."""
    given = os.environ.get("GOLOW_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(base) / "golow"


def data_root(given: Path | None, cache: Path) -> Path:
    """Where the publishers' files are: as given, or ``$GOLOW_DATA``, or a folder of the cache."""
    named = given or os.environ.get("GOLOW_DATA")
    return Path(named).expanduser() if named else cache / "data" / "raw"


def prepared_folder(cache: Path) -> Path:
    """Where the files of `golow.data.prepare` are."""
    return cache / "data"


def prepared_files(cache: Path) -> list[Path]:
    """Those files; unfinished ones, whose names begin with a dot, are not among them."""
    found = prepared_folder(cache).glob("*.safetensors")
    return sorted(file for file in found if not file.name.startswith("."))

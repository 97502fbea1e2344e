"""Which levels have loaded a workload before. They then find their choices of kernels in the cache,
time none while they load, and others may load alongside them."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

from golow.levels.generation.table import TextLevel, build_key
from golow.records.text import TextWorkload
from golow.storage.names import file_name


def times_nothing(level: TextLevel, workload: TextWorkload, cache: Path) -> bool:
    """True if the level chooses no kernels by timing when it loads now."""
    return not level.times or _mark(level, workload, cache).is_file()


def has_loaded(level: TextLevel, workload: TextWorkload, cache: Path) -> None:
    """Remember that the level has loaded the workload here."""
    mark = _mark(level, workload, cache)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()


def _mark(level: TextLevel, workload: TextWorkload, cache: Path) -> Path:
    """A file for the level, this golow and this machine, whose GPU the choices are for."""
    words = (level.name, version("golow"), platform.node())
    return cache / "texts" / build_key(workload) / file_name(" ".join(words))

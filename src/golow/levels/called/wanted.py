"""The settings of one call of `golow.compile`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from golow.records.workload import Precision


class Wanted(NamedTuple):
    """The settings of `golow.compile`, whose docstring states what each means."""

    level: str = "direct"
    batch: int | Sequence[int] | None = None
    sequence: int | Sequence[int] | None = None
    precision: Precision = "default"
    threads: int | None = None
    tune: bool = False
    share: bool = False
    cache: Path | None = None
    contexts: int = 1
    """Calls at a time over one session, of runtimes that have such; not an option of `compile`."""

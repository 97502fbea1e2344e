"""The settings of one call of `golow.compile_step`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class WantedStep(NamedTuple):
    """The settings of `golow.compile_step`, whose docstring says what each means."""

    optimizer: Any
    batch: int | Sequence[int] | None = None
    every: int = 1
    clip: float | None = None
    seed: int = 0
    threads: int | None = None
    tune: bool = False
    cache: Path | None = None

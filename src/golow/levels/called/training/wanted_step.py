"""The settings of one call of `golow.compile_step`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from golow.records.workload import Precision


class WantedStep(NamedTuple):
    """The settings of `golow.compile_step`, whose docstring states what each means."""

    optimizer: Any
    batch: int | Sequence[int] | None = None
    every: int = 1
    clip: float | None = None
    seed: int = 0
    precision: Precision = "default"
    loss_scale: float | None = None
    threads: int | None = None
    tune: bool = False
    cache: Path | None = None
    ranks: int | None = None

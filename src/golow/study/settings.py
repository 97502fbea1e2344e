"""How a study is measured: where, how many cells at a time, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from golow.study.attempt import PROGRAM


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """jobs: how many cells at a time, on different GPUs or disjoint cores. ray: ``auto`` or the
    address of a Ray cluster, which then measures. skip: cells that are certain to need too much
    memory are not tried. budget: seconds after which no further cell is begun. program: what Python
    runs for a cell."""

    jobs: int = 1
    ray: str | None = None
    skip: bool = True
    budget: float | None = None
    program: Sequence[str] = PROGRAM

"""How a study is measured: where, how many cells at a time, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from golow.programs.study.attempt import PROGRAM


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """jobs: how many GPUs, or disjoint sets of cores, to measure on. ray: ``auto`` or the address
    of a Ray cluster that measures instead. skip: do not try cells that are certain to need too much
    memory. refine: also measure cells with too few rounds again, with more time. budget: seconds
    after which no further cell starts. program: what Python runs for a cell."""

    jobs: int = 1
    ray: str | None = None
    skip: bool = True
    refine: bool = False
    budget: float | None = None
    program: Sequence[str] = PROGRAM

"""What a level under load needs, without a model: for planted levels."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from golow.programs.load.cores import Cores
from golow.programs.load.level_under_load import LevelUnderLoad, Place
from golow.programs.load.load_record import LoadPlan
from golow.worker.time_limits import Limits

SCRIPT = Path(__file__).with_name("planted_level.py")
SAMPLES = 16


def place_of(folder: Path, **settings: Any) -> Place:
    """A place for planted levels, which read no bundle. settings: of the plan."""
    plan = LoadPlan(
        **{"scenarios": ("server",), "most": 1, "delay": 0.0, "buckets": (1,), **settings}
    )
    workload = SimpleNamespace(threads=1)
    bundle: Any = SimpleNamespace(folder=folder, workload=workload)
    every = tuple(sorted(os.sched_getaffinity(0)))
    return Place(bundle, folder, plan, Cores(every, every, True), SAMPLES, folder, Limits())


@contextmanager
def planted(kind: str, folder: Path, **settings: Any) -> Iterator[LevelUnderLoad]:
    """A planted level that is ready for requests."""
    place = place_of(folder, **settings)._replace(command=(sys.executable, str(SCRIPT), kind))
    with LevelUnderLoad(kind, place) as level:
        level.load()
        yield level

"""Numbers in equal steps, with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps.array_steps import of_arrays
from golow.lower.operators.iota import Iota


def iota(build: Builder, arguments: Iota) -> None:
    """In inference they are written once, while loading."""
    start, step, count = arguments.start, arguments.step, arguments.count

    def run(y: Any) -> None:
        whole = isinstance(start, int) and isinstance(step, int)
        places: Any = np.arange(count, dtype=np.int64 if whole else np.float64)
        np.copyto(y, places * step + start, casting="unsafe")

    of_arrays(build, run)


IMPLEMENTATIONS = (Implementation(Iota, iota),)

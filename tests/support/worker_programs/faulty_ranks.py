"""``python faulty_ranks.py FAULT FOLDER`` serves `onednn` in which rank 1 makes a mistake.

FAULT: ``skips`` (keeps its own gradients), ``sums`` (instead of the mean), ``ends`` (when it is to
average).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from golow.levels.direct.onednn.run import program
from golow.levels.direct.ranks.shared_mean import SharedMean
from golow.worker.serve import run

FAULT = sys.argv[1]


class FaultyMean(SharedMean):
    """The mean with the mistake."""

    def __call__(self, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        faulty = self._meeting.rank == 1
        if faulty and FAULT == "ends":
            os._exit(1)
        own = [array.copy() for array in arrays]
        super().__call__(arrays, results)
        for given, result in zip(own, results, strict=True) if faulty else ():
            result[...] = given if FAULT == "skips" else result * self._meeting.ranks


program.SharedMean = FaultyMean  # type: ignore[misc]

if __name__ == "__main__":
    run(lambda: program.OneDnn(Path(sys.argv[2])))

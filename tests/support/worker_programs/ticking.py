"""A worker whose loading takes a while: ``ticking.py FILE TIMES``. Every ten milliseconds it writes
the time (nanoseconds of the machine's clock) into the file."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from golow.worker.plant import Plant
from golow.worker.protocol import LoadReport
from golow.worker.serve import run


class Ticking(Plant):
    """Loads nothing, slowly."""

    def load(self, bundle: Path) -> LoadReport:
        began = time.monotonic()
        with Path(sys.argv[1]).open("a", buffering=1) as file:
            for _ in range(int(sys.argv[2])):
                file.write(f"{time.monotonic_ns()}\n")
                time.sleep(0.01)
        return LoadReport(phases={"build": time.monotonic() - began})


if __name__ == "__main__":
    run(lambda: Ticking(0))

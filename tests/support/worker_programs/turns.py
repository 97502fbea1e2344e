"""One of several that share a card: takes turns at random and writes down when it had them.

turns.py FOLDER LOG TIMES SEED
"""

import os
import random
import sys
import time
from pathlib import Path

from golow.worker.turn import Turn

folder, log, times, seed = sys.argv[1:]
draw = random.Random(int(seed))  # noqa: S311 - no secret
turn = Turn(Path(folder))
with Path(log).open("ab", buffering=0) as file:
    for _ in range(int(times)):
        kind = draw.choice(("beside", "beside", "beside", "alone"))
        with getattr(turn, kind)():
            begun = time.monotonic_ns()
            time.sleep(draw.uniform(0, 0.01))
            ended = time.monotonic_ns()
        file.write(f"{kind} {begun} {ended} {os.getpid()}\n".encode())

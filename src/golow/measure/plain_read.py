"""The rate of a plain read of the machine's memory: measured once, and kept in the cache.

``python -m golow.measure.plain_read THREADS [SECONDS]`` prints bytes a second: the fastest of many
sums over one large array. It is the roof of work that reads each byte once, such as a step of text
generation, which reads the weights.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from pathlib import Path

from golow.measure.environment import environment
from golow.storage.cache import read_sealed, write_sealed

READ = 1 << 28  # bytes, several times the last cache
SECONDS, LIMIT = 1.0, 120.0  # of measuring, and for the whole process


def plain_read(threads: int, cache: Path) -> float | None:
    """Bytes a second; None if the measuring process failed."""
    machine = environment()
    parts = ("plain read", machine.cpu_model, machine.versions.get("torch", ""), threads)
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    file = cache / "peak" / f"{key}.json"
    kept = read_sealed(file, [])
    if kept is not None:
        return float(kept)
    command = [sys.executable, "-m", "golow.measure.plain_read", str(threads), str(SECONDS)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=LIMIT, check=True)
        found = float(done.stdout)
    except (subprocess.SubprocessError, ValueError):
        return None
    write_sealed(file, str(found).encode())
    return found


def measure(threads: int, seconds: float = SECONDS) -> float:
    """Bytes a second of the fastest read within so many seconds."""
    import torch

    torch.set_num_threads(threads)
    array = torch.ones(READ // 4)
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        array.sum()
        best = max(best, READ / (time.perf_counter() - start))
    return best


if __name__ == "__main__":
    count, *given = sys.argv[1:]
    print(measure(int(count), *map(float, given)))

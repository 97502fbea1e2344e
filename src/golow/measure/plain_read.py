"""The rate of a plain read of a device's memory: measured once, and kept in the cache until
something reads faster.

``python -m golow.measure.plain_read DEVICE THREADS [SECONDS]`` prints bytes per second: the fastest
of many sums over one large array, on a CPU also of its products with a vector. It is the roof of
work that reads each byte once, such as a step of text generation, which reads the weights.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from golow.measure.environment import environment
from golow.records.workload import Device
from golow.storage.cache import read_sealed, write_sealed
from golow.workload.import_path import module_command, python_environment

READ: dict[Device, int] = {"cpu": 1 << 28, "cuda": 1 << 32}  # bytes, several times the last cache
COLUMNS = 4096  # of the array as a matrix
SECONDS, LIMIT = 1.0, 120.0  # of measuring, and for the whole process


def plain_read(
    threads: int, cache: Path, device: Device = "cpu", exceeded_by: float = 0.0
) -> float | None:
    """Bytes per second; None if the measuring process failed. exceeded_by: the rate of other work;
    if it is higher than the kept rate, that one was measured on a busy machine, and is measured
    again; the higher one counts."""
    machine = environment()
    where = machine.cpu_model if device == "cpu" else machine.gpu
    parts = ("plain read", where, machine.versions.get("torch", ""), threads)
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    file = cache / "peak" / f"{key}.json"
    kept = read_sealed(file, [])
    before = 0.0 if kept is None else float(kept)
    if before > exceeded_by:
        return before
    command = module_command("golow.measure.plain_read", device, str(threads), str(SECONDS))
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=LIMIT, check=True, env=python_environment()
        )
        found = max(before, float(done.stdout))
    except (subprocess.SubprocessError, ValueError):
        return before or None
    with suppress(OSError):  # a cache that cannot be written costs no result
        write_sealed(file, str(found).encode())
    return found


def measure(device: Device, threads: int, seconds: float = SECONDS) -> float:
    """Bytes per second of the fastest read within this many seconds."""
    import torch

    torch.set_num_threads(threads)
    array = torch.ones(READ[device] // 4, device=device)
    factors = torch.ones(COLUMNS, device=device)
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        spent = on_gpu(array) if device == "cuda" else on_cpu(array, factors)
        best = max(best, READ[device] / spent)
    return best


def on_cpu(array: Any, factors: Any) -> float:
    """Seconds of a sum, or of a product with a vector: on some processors one takes much longer."""
    start = time.perf_counter()
    array.sum()
    between = time.perf_counter()
    array.view(-1, COLUMNS) @ factors
    return min(between - start, time.perf_counter() - between)


def on_gpu(array: Any) -> float:
    """Seconds of a sum by the GPU's clock."""
    import torch

    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    first.record()
    array.sum()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / 1e3


if __name__ == "__main__":
    where, count, *given = sys.argv[1:]
    print(measure("cuda" if where == "cuda" else "cpu", int(count), *map(float, given)))

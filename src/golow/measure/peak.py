"""Peak rates of this machine, in arithmetic and in moving bytes: measured once, and kept in
the cache.

``python -m golow.measure.peak DEVICE PRECISION THREADS [SECONDS]`` prints it. It is that of
products of matrices and of copies of large arrays, the fastest of many. On a CPU some products are
so small that one ends before the system gives the core to another process: of large ones, none is
undisturbed where the cores are busy.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from golow.measure.environment import environment
from golow.records.record import Record
from golow.records.workload import Device, Precision, Workload
from golow.storage.cache import read_sealed, write_sealed
from golow.workload.import_path import module_command, python_environment

SIZES = {"cpu": (192, 384, 1024), "cuda": (8192,)}  # rows of the matrices
COPIED = {"cpu": 256 << 20, "cuda": 2 << 30}  # bytes, several times the last cache
SECONDS, LIMIT = 0.5, 120.0  # of measuring one kind of work, and for the whole process
SLACK = 2.0
"""Factor by which a level may exceed the measured peak: a measurement on a busy machine
is too low, and other code may be better than the library's."""
IN_8_BITS, IN_TILES = 4.0, 32.0
"""Products of 8-bit integers in the time of one of float32: by VNNI, by AMX. The measured peak is
that of floats."""
ATTEMPTS = 2  # measurements of a peak before a level is refused


class Peak(Record, frozen=True, kw_only=True):
    """Floating point operations per second, and bytes read and written per second."""

    operations: float
    bytes: float


def impossible(operations: float, seconds: float, workload: Workload, cache: Path) -> str:
    """Why an iteration with at least this many operations cannot take so few seconds; empty if it
    can, or if the peak cannot be measured."""
    rate = operations / seconds if seconds else math.inf
    seen = min(rate / (SLACK * _gain(workload)), sys.float_info.max)
    highest = 0.0
    for _ in range(ATTEMPTS):
        peak = _highest(workload, cache, seen)
        if peak is None or seen <= peak:
            return ""
        highest = max(highest, peak)
    return (
        f"its time is impossible: {rate:.2g} operations per second, where this machine's measured "
        f"peak is {highest:.2g}"
    )


def _gain(workload: Workload) -> float:
    """Factor by which the workload's arithmetic may be faster than that of the measured peak."""
    if not any(layer.rule == "int8" for layer in workload.source.quantized):
        return 1.0
    tiles = any(flag.startswith("amx") for flag in environment().cpu_flags)
    return IN_TILES if tiles else IN_8_BITS


def _highest(workload: Workload, cache: Path, seen: float) -> float | None:
    """Operations per second that no level exceeds: of a CPU's threads together also the peak of one
    times their number, since threads that wait for one another are what busy cores slow down most.
    """
    device, precision, threads = workload.device, workload.precision, workload.threads
    peak = measured_peak(device, precision, threads, cache, seen)
    if peak is None or seen <= peak.operations or device == "cuda" or threads < 2:
        return None if peak is None else peak.operations
    one = measured_peak(device, precision, 1, cache, seen / threads)
    return max(peak.operations, threads * one.operations) if one is not None else None


def measured_peak(
    device: Device, precision: Precision, threads: int, cache: Path, seen: float = 0.0
) -> Peak | None:
    """The peak of the machine; None if the measuring process failed.

    seen: operations per second that were reached. A kept peak below it was probably measured on a
    busy machine: it is measured again, and the higher figures are kept.
    """
    machine = environment()
    versions = machine.versions.get("torch", "")
    parts = ("bytes", machine.cpu_model, machine.gpu, versions, device, precision, threads)
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    file = cache / "peak" / f"{key}.json"
    kept = read_sealed(file, [])
    known = None if kept is None else msgspec.json.decode(kept, type=Peak)
    if known is not None and known.operations >= seen:
        return known
    wanted = (device, precision, str(threads), str(SECONDS))
    command = module_command("golow.measure.peak", *wanted)
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=LIMIT, check=True, env=python_environment()
        )
        peak = msgspec.json.decode(done.stdout, type=Peak)
    except (subprocess.SubprocessError, msgspec.MsgspecError):
        return known
    if known is not None:
        peak = Peak(
            operations=max(known.operations, peak.operations), bytes=max(known.bytes, peak.bytes)
        )
    with suppress(OSError):  # a cache that cannot be written costs no result
        write_sealed(file, msgspec.json.encode(peak))
    return peak


def measure(device: str, precision: str, threads: int, seconds: float = SECONDS) -> Peak:
    """The fastest of many products of square matrices, in the fastest arithmetic that the precision
    permits anywhere. seconds: for each size and type of the matrices, and for copies."""
    import torch

    torch.set_num_threads(threads)
    # The default of convolutions on a GPU is TF32.
    torch.backends.cuda.matmul.allow_tf32 = precision in ("default", "tf32")
    halves = {"bf16": torch.bfloat16, "fp16": torch.float16}
    dtypes = {torch.float32, halves.get(precision, torch.float32)}
    operations = 0.0
    for size, dtype in itertools.product(SIZES[device], dtypes):
        matrix = torch.randn(size, size, device=device).to(dtype)
        product = _shortest(lambda m=matrix: m @ m, device, seconds)  # type: ignore[misc]
        operations = max(operations, 2.0 * size**3 / product)
    del matrix
    source = torch.zeros(COPIED[device], dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    copy = _shortest(lambda: target.copy_(source), device, seconds)
    return Peak(operations=operations, bytes=2.0 * COPIED[device] / copy)


def _shortest(run: Callable[[], object], device: str, seconds: float) -> float:
    """Seconds of the fastest run, within this many."""
    import torch

    best, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    on, wanted_precision, count, *given = sys.argv[1:]
    found = measure(on, wanted_precision, int(count), *map(float, given))
    print(msgspec.json.encode(found).decode())

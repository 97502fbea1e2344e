"""GPUs that can be named where there is none: what NVIDIA publishes about them.

Figures are of the board in SXM form where there are several, for dense matrices, at boost clock:
https://www.nvidia.com/en-us/data-center/a100/, .../h100/, .../h200/, .../l4/, .../l40s/;
https://developer.nvidia.com/blog/nvidia-hopper-architecture-in-depth/ (multiprocessors);
https://resources.nvidia.com/en-us-blackwell-architecture/datasheet (B200);
https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf (RTX 4090,
whose products of 16 bits are those with sums in float32). Where a page states the rate with
sparsity alone, the dense one is half of it.
"""

from __future__ import annotations

from typing import NamedTuple

from golow.records.errors import GolowError
from golow.records.workload import Precision


class KnownGpu(NamedTuple):
    """cache_bytes: of the last cache. bandwidth: bytes per second. half, tf32, float32: floating
    point operations per second in products of bf16 or fp16, of TF32, and without tensor cores."""

    title: str
    architecture: str
    multiprocessors: int
    cache_bytes: int
    bandwidth: float
    half: float
    tf32: float
    float32: float

    def operations(self, precision: Precision) -> float:
        """Operations per second in the fastest arithmetic that the precision permits anywhere."""
        if precision in ("bf16", "fp16"):
            return self.half
        return self.float32 if precision == "ieee" else self.tf32

    def plain_ns(self, transferred: int, flops: int) -> float:
        """Nanoseconds in which memory could transfer that many bytes and the multiprocessors do the
        arithmetic in float32, whichever takes longer: what it can take without tensor cores."""
        return 1e9 * max(transferred / self.bandwidth, flops / self.float32)


KNOWN = {
    "a100": KnownGpu("A100 80GB", "sm_80", 108, 40 << 20, 2.039e12, 312e12, 156e12, 19.5e12),
    "h100": KnownGpu("H100", "sm_90", 132, 50 << 20, 3.35e12, 989e12, 494e12, 67e12),
    "h200": KnownGpu("H200", "sm_90", 132, 50 << 20, 4.8e12, 989e12, 494e12, 67e12),
    "b200": KnownGpu("B200", "sm_100", 148, 126 << 20, 8e12, 2250e12, 1125e12, 75e12),
    "l4": KnownGpu("L4", "sm_89", 58, 48 << 20, 300e9, 121e12, 60e12, 30.3e12),
    "l40s": KnownGpu("L40S", "sm_89", 142, 96 << 20, 864e9, 362e12, 183e12, 91.6e12),
    "rtx4090": KnownGpu(
        "GeForce RTX 4090", "sm_89", 128, 72 << 20, 1008e9, 165e12, 82.6e12, 82.6e12
    ),
}


def named(name: str) -> KnownGpu:
    """Return the GPU of that name, in any case; raises `GolowError` with the names that there
    are."""
    found = KNOWN.get(name.lower())
    if found is None:
        raise GolowError(f"golow does not know the GPU {name!r}", f"it knows {', '.join(KNOWN)}.")
    return found

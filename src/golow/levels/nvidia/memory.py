"""Memory of a GPU and pinned memory of the host, by NVIDIA's own Python bindings, and the check of
what the driver answers."""

from __future__ import annotations

from ctypes import c_uint8
from typing import Any

import numpy as np
from cuda.bindings import driver


class GpuError(RuntimeError):
    """A call of the driver failed; the message has the call and the driver's error name."""


def checked(answer: tuple[Any, ...], call: str) -> Any:
    """Return what the driver returned besides its status. Raises `MemoryError` if the GPU is out of
    memory, `GpuError` for other failures."""
    status, *values = answer
    if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise MemoryError(f"{call}: out of memory on the GPU")
    if status != driver.CUresult.CUDA_SUCCESS:
        raise GpuError(f"{call}: {status.name}")
    return values[0] if len(values) == 1 else tuple(values)


class Region:
    """Device memory, initially zero and freed with the object; size in bytes."""

    def __init__(self, size: int) -> None:
        self.size = max(size, 256)
        self.address = int(checked(driver.cuMemAlloc(self.size), "cuMemAlloc"))
        checked(driver.cuMemsetD8(self.address, 0, self.size), "cuMemsetD8")
        # A `Stream` does not wait for work outside it.
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")

    def __del__(self) -> None:
        if address := getattr(self, "address", 0):
            driver.cuMemFree(address)


class Pinned:
    """Pinned host memory, which the device copies while the host continues; size in bytes."""

    def __init__(self, size: int) -> None:
        self.address = int(checked(driver.cuMemHostAlloc(size, 0), "cuMemHostAlloc"))
        self.bytes = np.ctypeslib.as_array((c_uint8 * size).from_address(self.address))

    def __del__(self) -> None:
        if address := getattr(self, "address", 0):
            driver.cuMemFreeHost(address)

"""State of this process and its GPU by CUDA's driver, asked by ctypes: no level needs a further
package for it, and nothing is loaded until it is asked."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

EAGER_LOADING, LAZY_LOADING = 1, 2  # CUmoduleLoadingMode
STACK_SIZE = 0  # CUlimit
SM_CLOCK, MEMORY_CLOCK = 1, 2  # nvmlClockType_t
UNKNOWN = "the driver does not report it"

BUS_ID_BYTES = 64


def module_loading() -> int | None:
    """`EAGER_LOADING` or `LAZY_LOADING`; None if the driver does not report it (before CUDA
    11.7)."""
    return _integer(ctypes.c_int, lambda mode: _cuda().cuModuleGetLoadingMode(mode))


def stack_bytes() -> int | None:
    """The stack that the current context keeps for each thread of the GPU."""
    return _integer(ctypes.c_size_t, lambda size: _cuda().cuCtxGetLimit(size, STACK_SIZE))


def set_stack_bytes(size: int) -> None:
    """Let the current context keep that much. Raises OSError if the driver refuses."""
    status = _cuda().cuCtxSetLimit(STACK_SIZE, ctypes.c_size_t(size))
    if status != 0:
        raise OSError(f"cuCtxSetLimit: CUDA error {status}")


def persistence() -> bool | None:
    """True if the driver stays loaded while no program uses the GPU."""
    mode = _integer(ctypes.c_uint, lambda out: _nvml().nvmlDeviceGetPersistenceMode(_card(), out))
    return None if mode is None else mode == 1


def clock(kind: int) -> int | None:
    """The highest clock that the GPU may take, MHz."""
    return _integer(
        ctypes.c_uint, lambda out: _nvml().nvmlDeviceGetMaxClockInfo(_card(), kind, out)
    )


def _integer(kind: Any, call: Callable[[Any], int]) -> int | None:
    """The number that a function writes; None if there is no such function or it fails."""
    written = kind()
    try:
        status = call(ctypes.byref(written))
    except (OSError, AttributeError):  # no library, or one without this function
        return None
    return int(written.value) if status == 0 else None


@functools.cache
def _cuda() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


@functools.cache
def _nvml() -> ctypes.CDLL:
    library = ctypes.CDLL("libnvidia-ml.so.1")
    library.nvmlInit_v2()
    return library


@functools.cache
def _card() -> ctypes.c_void_p:
    """NVML's handle of the first GPU that this process sees. NVML counts all GPUs, also those that
    CUDA_VISIBLE_DEVICES hides, so the GPU is found by its place on the bus."""
    bus_id, device = ctypes.create_string_buffer(BUS_ID_BYTES), ctypes.c_int()
    handle = ctypes.c_void_p()
    for status in (
        _cuda().cuDeviceGet(ctypes.byref(device), 0),
        _cuda().cuDeviceGetPCIBusId(bus_id, BUS_ID_BYTES, device),
        _nvml().nvmlDeviceGetHandleByPciBusId_v2(bus_id, ctypes.byref(handle)),
    ):
        if status != 0:
            raise OSError(f"the GPU is not known to NVML: error {status}")
    return handle

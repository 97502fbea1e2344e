"""``python tests/support/workers/host_device.py FAULT`` serves the program of ONNX Runtime on a GPU
with the host as its device: the same code, addresses and bindings, with the provider for the CPU.

FAULT plants an error: ``none``, ``marks`` (that are never written), ``upload`` (of zeros),
``aside`` (results that are not copied).
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from golow.levels.peers.device_program import Device
from golow.levels.peers.onnxruntime_device import OnnxRuntimeOnDevice
from golow.records.workload import Workload
from golow.worker.serve import run


class HostRegion:
    """Memory of the host, initially NaN, so that what is not written shows."""

    def __init__(self, size: int) -> None:
        self.array = np.full(max(size, 1), 0xFF, np.uint8)
        self.address = self.array.ctypes.data


class HostDevice:
    """The methods of a stream, done at once."""

    stream = 0

    def __init__(self, fault: str = "none") -> None:
        self.fault = fault

    def allocate(self, size: int) -> HostRegion:
        return HostRegion(size)

    def upload(self, address: int, array: np.ndarray) -> None:
        data = np.ascontiguousarray(array if self.fault != "upload" else np.zeros_like(array))
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def download(self, address: int, shape: Sequence[int], dtype: Any) -> np.ndarray:
        array = np.empty(tuple(shape), dtype)
        ctypes.memmove(array.ctypes.data, address, array.nbytes)
        return array

    def copy(self, target: int, source: int, size: int) -> None:
        if self.fault != "aside":
            ctypes.memmove(target, source, size)

    def copy_columns(
        self, target: int, target_pitch: int, source: int, source_pitch: int, width: int, rows: int
    ) -> None:
        if self.fault == "marks":
            return
        for row in range(rows):
            ctypes.memmove(target + row * target_pitch, source + row * source_pitch, width)

    def stopwatch(self, iterations: int) -> HostStopwatch:
        return HostStopwatch(iterations)


class HostStopwatch:
    """The host's clock instead of events."""

    def __init__(self, iterations: int) -> None:
        self.starts, self.stops = [0] * iterations, [0] * iterations

    def flush(self) -> None:
        """There is no cache of a device."""

    def start(self, iteration: int) -> None:
        self.starts[iteration] = time.perf_counter_ns()

    def stop(self, iteration: int) -> None:
        self.stops[iteration] = time.perf_counter_ns()

    def nanoseconds(self) -> tuple[int, ...]:
        return tuple(b - a for a, b in zip(self.starts, self.stops, strict=True))


class OnHost(OnnxRuntimeOnDevice):
    """The same with the provider for the CPU."""

    provider = "CPUExecutionProvider"
    memory = "cpu"

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def make_device(self) -> Device:
        return HostDevice(self.fault)

    def provider_options(self, device: Device, workload: Workload) -> dict[str, str]:
        return {}


if __name__ == "__main__":
    run(lambda: OnHost(sys.argv[1]))

"""A stream of a GPU: what is enqueued on it, and its events as a stopwatch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
from cuda.bindings import driver
from cuda.core import Device

from golow.levels.nvidia.memory import GpuError, Region, checked


class Stream:
    """A stream of a device, by default the first visible one; the device becomes the current one.
    Addresses are the device's; everything is enqueued, unless it states that it waits."""

    def __init__(self, ordinal: int = 0) -> None:
        self._device = Device(ordinal)
        self._device.set_current()
        self._main = self._device.create_stream()
        self.stream = int(self._main.handle)
        self.name = self._device.name
        self.cache_bytes = int(self._device.properties.l2_cache_size)

    def make_current(self) -> None:
        """Make the device current in this thread."""
        self._device.set_current()

    # ------------------------------------------------------------ memory

    def allocate(self, size: int) -> Region:
        """Take device memory of that many bytes, initially zero."""
        return Region(size)

    def upload(self, address: int, array: np.ndarray) -> None:
        """Copy an array to the device after all enqueued work; returns when it is there."""
        data = np.ascontiguousarray(array)
        place = data.ctypes.data
        checked(driver.cuMemcpyHtoDAsync(address, place, data.nbytes, self.stream), "cuMemcpyHtoD")
        self.synchronize()

    def download(self, address: int, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Copy from the device after all enqueued work is done."""
        self.synchronize()
        array = np.empty(tuple(shape), dtype)
        checked(driver.cuMemcpyDtoH(array.ctypes.data, address, array.nbytes), "cuMemcpyDtoH")
        return array

    def fill(self, address: int, size: int, byte: int = 0) -> None:
        """Enqueue filling that many bytes."""
        checked(driver.cuMemsetD8Async(address, byte, size, self.stream), "cuMemsetD8Async")

    def copy(self, target: int, source: int, size: int) -> None:
        """Enqueue a copy within the device; size in bytes."""
        checked(driver.cuMemcpyDtoDAsync(target, source, size, self.stream), "cuMemcpyDtoDAsync")

    def write_word(self, address: int, value: int, stream: int | None = None) -> None:
        """Enqueue writing a 32-bit word, without a kernel or a copy. stream: another one."""
        on = self.stream if stream is None else stream
        checked(driver.cuStreamWriteValue32(on, address, value, 0), "cuStreamWriteValue32")

    def copy_columns(
        self, target: int, target_pitch: int, source: int, source_pitch: int, width: int, rows: int
    ) -> None:
        """Enqueue a copy within the device of the first bytes of every row; width and pitches, from
        row to row, in bytes."""
        copy = driver.CUDA_MEMCPY2D()
        device = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.srcMemoryType, copy.srcDevice, copy.srcPitch = device, source, source_pitch
        copy.dstMemoryType, copy.dstDevice, copy.dstPitch = device, target, target_pitch
        copy.WidthInBytes, copy.Height = width, rows
        checked(driver.cuMemcpy2DAsync(copy, self.stream), "cuMemcpy2DAsync")

    def synchronize(self) -> None:
        """Wait for all enqueued work."""
        checked(driver.cuStreamSynchronize(self.stream), "cuStreamSynchronize")

    # ------------------------------------------------------------ events

    def event(self) -> Any:
        """Create an event for timing."""
        return checked(driver.cuEventCreate(0), "cuEventCreate")

    def record(self, event: Any) -> None:
        """Record the event."""
        checked(driver.cuEventRecord(event, self.stream), "cuEventRecord")

    def forget(self, event: Any) -> None:
        """Free an event after it has occurred."""
        checked(driver.cuEventDestroy(event), "cuEventDestroy")

    def marker(self) -> Any:
        """Create an event for waiting only; the host's thread sleeps while it waits."""
        flags = driver.CUevent_flags
        sleeping = flags.CU_EVENT_BLOCKING_SYNC | flags.CU_EVENT_DISABLE_TIMING
        return checked(driver.cuEventCreate(sleeping), "cuEventCreate")

    def wait(self, event: Any) -> None:
        """Wait for an event; returns at once if it was never recorded."""
        checked(driver.cuEventSynchronize(event), "cuEventSynchronize")

    def stopwatch(self, iterations: int) -> Stopwatch:
        """Create events for this many iterations."""
        return Stopwatch(self, iterations)

    def elapsed_ns(self, first: Any, second: Any) -> int:
        """Nanoseconds between two events that have occurred."""
        elapsed: float = checked(driver.cuEventElapsedTime(first, second), "cuEventElapsedTime")
        return round(elapsed * 1e6)


class Stopwatch:
    """Times iterations with pairs of events."""

    def __init__(self, stream: Stream, iterations: int) -> None:
        self._stream = stream
        self._pairs: list[tuple[Any, Any]] = []
        # Created one by one, so that on failure the existing ones are freed.
        self._pairs += ((stream.event(), stream.event()) for _ in range(iterations))
        self._flushed: Region | None = None

    def flush(self) -> None:
        """Enqueue clearing the L2 cache."""
        size = 2 * self._stream.cache_bytes
        self._flushed = self._flushed or Region(size)
        self._stream.fill(self._flushed.address, size)

    def start(self, index: int) -> None:
        """Enqueue the start event of an iteration."""
        self._stream.record(self._pairs[index][0])

    def stop(self, index: int) -> None:
        """Enqueue its end event."""
        self._stream.record(self._pairs[index][1])

    def nanoseconds(self) -> tuple[int, ...]:
        """Return the time of each iteration, after all events have occurred."""
        self._stream.synchronize()
        return tuple(self._stream.elapsed_ns(*pair) for pair in self._pairs)

    def __del__(self) -> None:
        for event in chain(*self._pairs):
            with suppress(GpuError):  # at exit, the driver may already be gone
                self._stream.forget(event)

"""Events around the iterations that JAX enqueues on a GPU.

JAX does not tell the stream on which it computes, but it makes any other stream wait for an array,
on the device, while the host continues: this is how arrays are handed to other libraries. Here the
other stream has nothing but events. An event recorded after such a wait happens when the array is
there; an array is there when the whole program has ended that made it.

Source:
https://data-apis.org/array-api/latest/API_specification/generated/array_api.array.__dlpack__.html
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from cuda.bindings import driver
from cuda.core import Device

from golow.levels.traced.jax.execution import Execution


class Stopwatch:
    """Pairs of events around iterations of an execution, each after all that was enqueued."""

    def __init__(self, execution: Execution, iterations: int) -> None:
        self._execution = execution
        self._device = Device(0)
        self._device.set_current()
        self._stream = self._device.create_stream()
        self._handle = int(self._stream.handle)
        self._pairs: list[tuple[Any, Any]] = []
        # Created one by one, so that on failure the existing ones are freed.
        self._pairs += ((_event(), _event()) for _ in range(iterations))
        self._scratch: Any = None

    def flush(self) -> None:
        """Enqueue a write of twice the size of the L2 cache, which empties it."""
        if self._scratch is None:
            size = 2 * int(self._device.properties.l2_cache_size)
            self._scratch = jnp.zeros(size, jnp.uint8)
        self._scratch = _counted_up(self._scratch)
        self._execution.enqueued.append(self._scratch)

    def start(self, iteration: int) -> None:
        """Enqueue the event before that iteration."""
        self._record(self._pairs[iteration][0])

    def stop(self, iteration: int) -> None:
        """Enqueue the event after that iteration."""
        self._record(self._pairs[iteration][1])

    def nanoseconds(self) -> tuple[int, ...]:
        """Wait until the device is done; the device time of each iteration."""
        _checked(driver.cuStreamSynchronize(self._handle), "cuStreamSynchronize")
        return tuple(_elapsed_ns(*pair) for pair in self._pairs)

    def _record(self, event: Any) -> None:
        for array in self._execution.take_enqueued():
            array.__dlpack__(stream=self._handle)
        _checked(driver.cuEventRecord(event, self._handle), "cuEventRecord")

    def __del__(self) -> None:
        for pair in self._pairs:
            for event in pair:
                driver.cuEventDestroy(event)


_counted_up = jax.jit(lambda array: array + 1)


def _event() -> Any:
    return _checked(driver.cuEventCreate(0), "cuEventCreate")


def _elapsed_ns(start: Any, stop: Any) -> int:
    """Nanoseconds between two events that have happened."""
    milliseconds = _checked(driver.cuEventElapsedTime(start, stop), "cuEventElapsedTime")
    return round(float(milliseconds) * 1e6)


def _checked(answer: tuple[Any, ...], call: str) -> Any:
    """Return what the driver returned besides its status; raises RuntimeError if that is
    not a success."""
    status, *values = answer
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{call}: {status.name}")
    return values[0] if values else None

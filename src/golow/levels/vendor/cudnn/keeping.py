"""Results of timed iterations, copied aside on the device and read once the block is over."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from golow.levels.vendor.cudnn.execution import Execution
from golow.levels.vendor.cudnn.feeding import Collector

MOST_BYTES = 64 << 20  # on the device; when it is full the results are read and weighed at once


class Aside:
    """The values under these keys after each of several runs."""

    def __init__(self, execution: Execution, keys: Sequence[tuple[str, str]]) -> None:
        self._execution, self._keys = execution, keys
        tensors = [execution.built.outputs[key] for key in keys]
        size = sum(tensor.layout.bytes(tensor.shape) for tensor in tensors)
        self._room = max(1, MOST_BYTES // max(1, size))
        self._collectors = [Collector(execution, key, self._room) for key in keys]
        self._count = 0
        self._read: list[list[np.ndarray]] = []

    def take(self) -> None:
        """Enqueue the copying of what the last run gave."""
        if self._count == self._room:
            self._read += self._drain()
        for collector in self._collectors:
            collector.take(self._execution)
        self._count += 1

    def empty(self) -> list[list[np.ndarray]]:
        """For each run since the last call, its values in the order of the keys."""
        found, self._read = [*self._read, *self._drain()], []
        return found

    def _drain(self) -> list[list[np.ndarray]]:
        arrays = [collector.arrays()[: self._count] for collector in self._collectors]
        for collector in self._collectors:
            collector.rewind()
        self._count = 0
        return [list(run) for run in zip(*arrays, strict=True)]

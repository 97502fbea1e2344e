"""Results of timed iterations, kept on the device as one number each and read once the block is
over. Outputs are weighed there: to read those of a text model takes longer than to compute them."""

from __future__ import annotations

import math

import numpy as np

from golow.levels.direct.cudnn.run.execution import Execution
from golow.levels.direct.cudnn.run.feeding import Collector
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.commitment_sum import weighing
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.kernel_views import View
from golow.levels.nvidia.memory import Region

ROOM = 256  # iterations; then what was kept is read at once


class Losses:
    """The losses of several runs."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._collector = Collector(execution, ("loss", "loss"), ROOM)

    def put(self, position: int) -> None:
        """Enqueue the copying of the last run's loss; positions come in order, from 0."""
        self._collector.take(self._execution)

    def read(self, count: int) -> list[float]:
        """The first ``count`` losses."""
        found = [float(array.flat[0]) for array in self._collector.arrays()[:count]]
        self._collector.rewind()
        return found


class WeightedSums:
    """The weighted sums of several runs' outputs."""

    def __init__(self, execution: Execution) -> None:
        self._execution, self._gpu = execution, execution.gpu
        self._parts = list(zip(_outputs(execution), weighing_kernels(execution), strict=True))
        self._blocks = sum(kernel.grid[0] for _, kernel in self._parts)
        self._region = Region(ROOM * self._blocks * np.dtype(np.float64).itemsize)

    def put(self, position: int) -> None:
        """Enqueue the weighing of the last run's outputs."""
        place = self._region.address + 8 * position * self._blocks
        for tensor, kernel in self._parts:
            self._gpu.launch(kernel, [self._execution.address(tensor), place])
            place += 8 * kernel.grid[0]

    def read(self, count: int) -> list[float]:
        """The first ``count`` sums."""
        shape = (count, self._blocks)
        sums: list[float] = (
            self._gpu.download(self._region.address, shape, np.float64).sum(1).tolist()
        )
        return sums


class Aside:
    """One number for each run since it was last emptied."""

    def __init__(self, kind: Losses | WeightedSums) -> None:
        self._kind, self._count = kind, 0
        self._read: list[float] = []

    def take(self) -> None:
        """Enqueue the keeping of what the last run gave."""
        if self._count == ROOM:
            self._drain()
        self._kind.put(self._count)
        self._count += 1

    def empty(self) -> list[float]:
        """The numbers, in order."""
        self._drain()
        found, self._read = self._read, []
        return found

    def _drain(self) -> None:
        self._read += self._kind.read(self._count)
        self._count = 0


def weighing_kernels(execution: Execution) -> list[Kernel]:
    """Kernels that compute the commitment of each output, in their order."""
    found, first = [], 0
    for tensor in _outputs(execution):
        view = View(tensor.layout.dtype, tensor.layout.strides(tensor.shape))
        found.append(weighing(view, tensor.shape, first))
        first += math.prod(tensor.shape)
    return found


def _outputs(execution: Execution) -> list[Tensor]:
    named = {key: tensor for key, tensor in execution.built.outputs.items() if key[0] == "output"}
    return [named[key] for key in sorted(named, key=lambda key: int(key[1]))]

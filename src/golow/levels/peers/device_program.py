"""The worker's part of the runtimes outside PyTorch on a GPU: inputs and outputs stay in the
device's memory, and every iteration is enqueued on one stream."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from golow.levels.peers.array_program import Array, ArrayProgram
from golow.records.workload import Workload
from golow.worker.marking import marked_span, values_of
from golow.worker.protocol import Marks
from golow.worker.results import weighted_sum
from golow.worker.served_program import Stopwatch

ASIDE_BYTES = 64 << 20  # of results on the device; when they are full, they are read and weighed


class Region(Protocol):
    """Memory of the device, freed with the object."""

    address: int


class Device(Protocol):
    """A device's stream and memory; `golow.levels.nvidia.stream.Stream` describes the methods."""

    stream: int

    def allocate(self, size: int) -> Region:
        """Memory of that many bytes."""

    def upload(self, address: int, array: Array) -> None:
        """Copy to the device, and wait."""

    def download(self, address: int, shape: Sequence[int], dtype: Any) -> Array:
        """Wait, and copy from the device."""

    def copy(self, target: int, source: int, size: int) -> None:
        """Enqueue a copy within the device."""

    def copy_columns(
        self, target: int, target_pitch: int, source: int, source_pitch: int, width: int, rows: int
    ) -> None:
        """Enqueue a copy within the device of the first bytes of every row."""

    def stopwatch(self, iterations: int) -> Stopwatch:
        """Events around that many iterations."""


class Tensor(NamedTuple):
    """A tensor in the device's memory; its elements are in order. bytes: its size."""

    region: Region
    shape: tuple[int, ...]
    dtype: npt.DTypeLike
    bytes: int


class DeviceArrayProgram(ArrayProgram):
    """A workload run by a runtime on a device's memory; a level overrides the methods below.

    The outputs of all batches share their memory, so that the last run's are there.
    """

    device: Device

    def make_device(self) -> Device:
        """The first visible GPU."""
        from golow.levels.nvidia.stream import Stream

        return Stream()

    @abstractmethod
    def open_on(self, device: Device, folder: Path, workload: Workload) -> None:
        """Load the exported model in that folder, to run on the device's stream."""

    @abstractmethod
    def describe_outputs(self) -> Sequence[tuple[tuple[int, ...], npt.DTypeLike]]:
        """Shape and type of each output, in tree order."""

    @abstractmethod
    def connect(self, index: int, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Prepare to run on these inputs, which are batch ``index``, into these outputs."""

    # ------------------------------------------------------------ of ArrayProgram

    def open(self, folder: Path, workload: Workload) -> None:
        """Open the model, and take memory for its outputs."""
        self._aside: Aside | None = None
        self._uploaded: dict[int, list[Tensor]] = {}
        self.device = self.make_device()
        self.open_on(self.device, folder, workload)
        self._outputs = [self._place(*described) for described in self.describe_outputs()]

    def bind(self, index: int, inputs: list[Array]) -> None:
        """Upload a batch, where it stays."""
        tensors = [self._place(array.shape, array.dtype) for array in inputs]
        for tensor, array in zip(tensors, inputs, strict=True):
            self.device.upload(tensor.region.address, array)
        self._uploaded[index] = tensors
        self.connect(index, tensors, self._outputs)

    def results(self, index: int) -> list[Array]:
        """The outputs of the last run, read from the device when it is done."""
        return [
            self.device.download(output.region.address, output.shape, output.dtype)
            for output in self._outputs
        ]

    def stopwatch(self, iterations: int) -> Stopwatch:
        """Events on the device's stream."""
        return self.device.stopwatch(iterations)

    @contextmanager
    def marked(self, marks: Marks) -> Iterator[Callable[[int], None]]:
        """Enqueue the copying of marks into the batches on the device; afterwards upload these
        inputs again."""
        tensors = [self._uploaded[index][marks.input] for index in range(len(self.inputs))]
        item, rows = np.dtype(tensors[0].dtype).itemsize, tensors[0].shape[0]
        pitch, width = tensors[0].bytes // rows, item * marks.length
        part = marked_span(marks, pitch // item)
        values = values_of(marks, rows).astype(tensors[0].dtype)
        row = self._place(values.shape, values.dtype).region
        self.device.upload(row.address, values)

        def write(start: int) -> None:
            tensor = tensors[self.position % len(tensors)]
            first = tensor.region.address + item * part.start
            self.device.copy_columns(first, pitch, row.address + item * start, width, width, rows)

        try:
            yield write
        finally:
            for tensor, arrays in zip(tensors, self.inputs, strict=True):
                self.device.upload(tensor.region.address, arrays[marks.input])

    def _place(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Tensor:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        return Tensor(self.device.allocate(size), shape, dtype, size)

    def keep(self) -> None:
        """Enqueue the copying of the last outputs."""
        self._aside = self._aside or Aside(self.device, self._outputs)
        self._aside.take()

    def kept(self) -> list[float]:
        """The weighted sums of what was kept since the last call."""
        aside, self._aside = self._aside, None  # its memory is not the level's
        return aside.empty() if aside else []


class Aside:
    """Outputs of several runs, copied aside on the device."""

    def __init__(self, device: Device, outputs: Sequence[Tensor]) -> None:
        self._device, self._outputs = device, outputs
        self._places = [0]  # where each output begins in a run's part, and where the part ends
        for output in outputs:
            self._places.append(self._places[-1] + -(-output.bytes // 256) * 256)
        self._room = max(1, ASIDE_BYTES // max(1, self._places[-1]))
        self._region = device.allocate(self._room * self._places[-1])
        self._count = 0
        self._sums: list[float] = []

    def take(self) -> None:
        """Enqueue the copying of what the last run gave."""
        if self._count == self._room:
            self._weigh()
        for output, place in zip(self._outputs, self._begin(self._count), strict=True):
            self._device.copy(place, output.region.address, output.bytes)
        self._count += 1

    def empty(self) -> list[float]:
        """The weighted sum of each run."""
        self._weigh()
        found, self._sums = self._sums, []
        return found

    def _weigh(self) -> None:
        for run in range(self._count):
            arrays = [
                self._device.download(place, output.shape, output.dtype)
                for output, place in zip(self._outputs, self._begin(run), strict=True)
            ]
            self._sums.append(weighted_sum(arrays))
        self._count = 0

    def _begin(self, run: int) -> list[int]:
        start = self._region.address + run * self._places[-1]
        return [start + place for place in self._places[:-1]]

"""Feeds batches of a data set to a plan. Their bytes are uploaded from pinned memory during the
computation, and one kernel writes the images where iterations read their input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.direct.cudnn.bindings.device import Gpu
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import NUMPY_TYPES, unpacked
from golow.levels.direct.cudnn.run.execution import Execution
from golow.levels.direct.cudnn.shared_kernels.augment_images import normalise
from golow.levels.nvidia.memory import Pinned, Region
from golow.worker.feed import Fed, Feed


class Slot:
    """Memory for one batch in transit: pinned host memory, and as many bytes on the device.

    images: [n, C, H, W]. Nothing may write to it before ``done`` has occurred.
    """

    def __init__(self, gpu: Gpu, images: tuple[int, ...]) -> None:
        count, channels = images[:2]
        parts: dict[str, tuple[tuple[int, ...], Any]] = {  # widest types first, for alignment
            "labels": ((count,), np.int64),
            "scale": ((channels,), np.float32),
            "shift": ((channels,), np.float32),
            "pixels": (images, np.uint8),
            "shifts": ((count, 2), np.int8),
            "flips": ((count,), np.uint8),
        }
        sizes = [math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in parts.values()]
        self.size = sum(sizes)
        self.host, self._device = Pinned(self.size), Region(self.size)
        self.uploaded, self.done = gpu.marker(), gpu.marker()
        self._places: dict[str, np.ndarray] = {}
        self._addresses: dict[str, int] = {}
        for index, (part, (shape, dtype)) in enumerate(parts.items()):
            offset = sum(sizes[:index])
            self._places[part] = np.ndarray(shape, dtype, self.host.bytes, offset)
            self._addresses[part] = self._device.address + offset

    def put(self, part: str, array: np.ndarray) -> None:
        """Copy into the pinned memory; the last row fills the rows that the array lacks."""
        place = self._places[part]
        place[: len(array)] = array
        place[len(array) :] = array[-1]

    def address(self, part: str) -> int:
        """Return the device address of a part."""
        return self._addresses[part]

    @property
    def device(self) -> int:
        """The device address of the whole slot."""
        return self._device.address


class Intake:
    """Feeds one execution, whose batches in memory become a ring. The host runs ahead by as many
    batches as there are, and waits only for the step that last used a place."""

    def __init__(self, execution: Execution) -> None:
        self._execution, self._gpu = execution, execution.gpu
        inputs = execution.built.inputs
        self._image, self._target = inputs[("input", "0")], inputs.get(("target", "0"))
        count, *images = self._image.shape
        self._slots = [Slot(self._gpu, tuple(images)) for _ in range(count)]
        self._kernel = normalise(*images)
        self._next = 0

    def run(self, fed: Fed, feed: Feed) -> None:
        """Enqueue an iteration on this batch; its last row fills up a plan with more rows."""
        index = self._next
        self._next = (index + 1) % len(self._slots)
        slot, gpu = self._slots[index], self._gpu
        gpu.wait(slot.done)
        arrays = {**fed._asdict(), "scale": feed.scale, "shift": feed.shift}
        given = {part: array for part, array in arrays.items() if array is not None}
        for part, array in given.items():
            slot.put(part, array)
        gpu.upload_beside(slot.device, slot.host, slot.size)
        gpu.record_beside(slot.uploaded)
        gpu.join(slot.uploaded)
        order = ("pixels", "scale", "shift", "shifts", "flips")
        pointers = [slot.address(part) if part in given else 0 for part in order]
        gpu.launch(self._kernel, [*pointers, self._execution.place(self._image, index)])
        if self._target is not None:
            size = fed.labels.nbytes
            gpu.copy(self._execution.place(self._target, index), slot.address("labels"), size)
        self._execution.run(index)
        gpu.record(slot.done)


class Collector:
    """Collects the output of one key from several runs, in copies on the device."""

    def __init__(self, execution: Execution, key: tuple[str, str], count: int) -> None:
        self._key, self._gpu, self._like = key, execution.gpu, execution.built.outputs[key]
        self._extent = self._like.layout.extent(self._like.shape)
        self._bytes = self._extent * ITEM_BYTES[self._like.dtype]
        self._region, self._count = Region(self._bytes * count), 0

    def take(self, execution: Execution) -> None:
        """Enqueue a copy of the output of this execution's last run."""
        source = execution.address(execution.built.outputs[self._key])
        self._gpu.copy(self._region.address + self._count * self._bytes, source, self._bytes)
        self._count += 1

    def rewind(self) -> None:
        """Let the next copy be the first again."""
        self._count = 0

    def arrays(self) -> list[np.ndarray]:
        """Return all copies, after everything has run; 16-bit floats as float32."""
        like = self._like
        shape, dtype = (self._count, self._extent), NUMPY_TYPES[like.dtype]
        flat = self._gpu.download(self._region.address, shape, dtype)
        return [
            np.require(unpacked(row, like.shape, like.layout), requirements="C") for row in flat
        ]

"""One device memory for the weights of several plans of one network, such as those of several batch
sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from golow.levels.direct.constant_keys import ConstantKey, constant_keys
from golow.levels.direct.cudnn.bindings.device import Gpu
from golow.levels.direct.cudnn.build.builder import ALIGNMENT
from golow.levels.direct.cudnn.run.device_memory import CONSTANT, DeviceMemory
from golow.levels.direct.cudnn.shared_kernels.comparing import compare
from golow.levels.nvidia.memory import Region
from golow.lower.plan.plan import Plan

WORD = 4  # bytes


class SharedWeights:
    """The memory. bytes: of all that it holds."""

    def __init__(self) -> None:
        self.bytes = 0
        self._regions: list[Region] = []
        self._known: dict[ConstantKey, list[int]] = defaultdict(list)  # addresses

    def take(self, gpu: Gpu, plan: Plan, memory: DeviceMemory) -> None:
        """Take the constants of a plan, but for what another plan has brought already, and let the
        plan read them here."""
        constants = memory.place(CONSTANT)
        if constants is None:
            return
        keys = constant_keys(plan)
        own = {index: constants.address + plan.buffers[index].offset for index in keys}
        moved = self._found(gpu, keys, own)
        new = [index for index in keys if index not in moved]
        region = Region(sum(_rounded(keys[index].size) for index in new))
        place = region.address
        for index in new:
            gpu.copy(place, own[index], keys[index].size)
            self._known[keys[index]].append(place)
            moved[index] = place
            place += _rounded(keys[index].size)
        gpu.synchronize()
        self.bytes += place - region.address
        self._regions.append(region)
        memory.move_constants(moved)

    def close(self) -> None:
        """Release the memory. No plan may read it any more."""
        self.bytes = 0
        self._regions.clear()
        self._known.clear()

    def _found(
        self, gpu: Gpu, keys: Mapping[int, ConstantKey], own: Mapping[int, int]
    ) -> dict[int, int]:
        """The addresses of equal content, by buffer."""
        pairs = [(index, place) for index, key in keys.items() for place in self._known[key]]
        if not pairs:
            return {}
        flags = Region(WORD * len(pairs))
        for number, (index, place) in enumerate(pairs):
            target = flags.address + WORD * number
            gpu.launch(compare(keys[index].size), [own[index], place, target])
        differ = gpu.download(flags.address, (len(pairs),), np.uint32)
        return {
            index: place for (index, place), flag in zip(pairs, differ, strict=True) if not flag
        }


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT

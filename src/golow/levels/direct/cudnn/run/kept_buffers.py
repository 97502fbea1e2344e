"""Device memory of buffers that inference changes, such as caches, for several plans of one
network."""

from __future__ import annotations

from golow.levels.direct.cudnn.bindings.device import Gpu
from golow.levels.direct.cudnn.run.device_memory import SharedState
from golow.levels.direct.cudnn.steps.built_plan import KEPT, Built
from golow.levels.nvidia.memory import Region


class KeptBuffers:
    """The memory, by the buffers' names. bytes: of all that it holds."""

    def __init__(self) -> None:
        self._regions: dict[str, Region] = {}

    @property
    def bytes(self) -> int:
        """Bytes of all that it holds."""
        return sum(region.size for region in self._regions.values())

    def shared(self, built: Built) -> SharedState:
        """The buffers of a plan here, with room for those that no plan had before."""
        moved: dict[int, int] = {}
        for (_, target), tensor in built.inputs.items():
            buffer = built.plan.buffers[tensor.buffer]
            if buffer.place == KEPT:
                if target not in self._regions:
                    self._regions[target] = Region(buffer.bytes)
                moved[tensor.buffer] = self._regions[target].address
        return SharedState({KEPT: Region(0)} if moved else {}, moved)

    def clear(self, gpu: Gpu) -> None:
        """Set all of it to zero, after what was enqueued."""
        for region in self._regions.values():
            gpu.fill(region.address, region.size)
        gpu.synchronize()

    def close(self) -> None:
        """Release the memory. No plan may run any more."""
        self._regions.clear()

"""The worker of the variant ``emitted``: a PyTorch program that calls the library of `golow emit`
through its header."""

from __future__ import annotations

from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from golow.levels.called.emitted_library import EmittedLibrary, EmittedNetwork, built_library
from golow.levels.called.outputs import Outputs
from golow.levels.called.program import Called
from golow.levels.called.sizes import Size
from golow.levels.torch.step import Lowered
from golow.storage.cache import open_cache
from golow.storage.scratch import scratch_folder


class Emitted(Called):
    """The module as its emitted C++ computes it."""

    def __init__(self) -> None:
        super().__init__(tune=False)
        self._library: EmittedLibrary | None = None
        self._network: EmittedNetwork | None = None
        self._outputs: Outputs
        self._size: Size

    def lower(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> Lowered:
        """Build the library, or load the module's weights into it anew."""
        if self._library is None:
            called = self.built(module, inputs)
            self._library = built_library(called, open_cache(), self.notes)
            self._outputs, self._size = called.outputs, called.inputs.sizes[-1]
            called.close()
        if self._network is not None:
            self._network.close()
        with scratch_folder() as folder:
            weights = folder / "weights.safetensors"
            state = module.state_dict()
            # Copies, because two names may share memory, which the format forbids.
            save_file({name: item.contiguous().clone() for name, item in state.items()}, weights)
            self._network = EmittedNetwork(self._library, weights)
        return self._run

    def _run(self, *inputs: Tensor) -> Any:
        outputs = self._outputs.new(self._size)
        given = [item.contiguous() for item in inputs]
        assert self._network is not None  # noqa: S101 - `lower` has made it
        ends = [t.data_ptr() for t in given], [t.data_ptr() for t in outputs]
        if self.device.type == "cuda":
            stream = torch.cuda.current_stream(self.device).cuda_stream
            self._network.enqueue(self._size[0], *ends, stream)
        else:
            self._network.run(self._size[0], *ends)
        return self._outputs.whole(outputs)


def program(variant: str) -> Emitted:
    """The worker's side."""
    return Emitted()

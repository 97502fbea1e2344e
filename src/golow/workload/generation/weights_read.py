"""Weights that a call of a module reads, for models of which a step runs only a part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from golow.workload.quantization.quantized_layers import Quantized

LOOK_UPS = (torch.ops.aten.embedding.default, torch.ops.aten.index.Tensor)


def bytes_read(module: nn.Module, call: Callable[[], object]) -> int:
    """Return the bytes of the module's weights that a call reads whole."""
    with _Reading(module) as reading:
        call()
    return sum(reading.found.values())


class _Reading(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, found has the bytes of the weights that operators read, except to look up rows."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[int, int] = {}
        self._weights = {id(weight) for weight in module.parameters()}
        for layer in module.modules():
            if isinstance(layer, Quantized):
                self._weights |= {id(layer.weight), id(layer.output_scale)}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the operator."""
        if func not in LOOK_UPS:
            for given in tree_iter((args, kwargs)):
                if id(given) in self._weights:
                    self.found[id(given)] = given.nbytes
        return func(*args, **(kwargs or {}))

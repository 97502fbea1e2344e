"""Takes a layer out of a network: the module, and the input that it gets there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from golow.records.errors import GolowError
from golow.workload.prepare import Prepared
from golow.workload.request import Request


def layer_request(request: Request, prepared: Prepared, layer: str) -> Request:
    """The request for the layer alone, on what its first call gets in the network.

    Raises `GolowError` if there is no such layer, if it is not called, or if it takes something
    other than tensors with the batch first.
    """
    module = _find(prepared.module, layer)
    inputs = _inputs(prepared, module, layer)
    return Request(
        module,
        inputs,
        seed=request.seed,
        threads=1,
        device=request.device,
        precision=request.precision,
    )


def _find(network: nn.Module, layer: str) -> nn.Module:
    modules: dict[str, nn.Module] = dict(network.named_modules())
    if layer in modules:
        return modules[layer]
    last = layer.rpartition(".")[2]
    near = [path for path in modules if path and (path.endswith(last) or last in path)]
    shown = near or [
        path for path, module in modules.items() if path and not any(module.children())
    ]
    raise GolowError(
        f"the network has no layer {layer!r}", f"name one of its layers: {', '.join(shown[:8])}."
    )


def _inputs(prepared: Prepared, module: nn.Module, layer: str) -> tuple[Tensor, ...]:
    """Copies of the arguments of the module's first call."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def keep(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        # Copied at once: the layer, or a later one, may work in place.
        calls.append((pytree.tree_map_only(Tensor, Tensor.clone, given), named))

    handle = module.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        with torch.no_grad():
            prepared.module(*prepared.batches[0].inputs)
    finally:
        handle.remove()
    if not calls:
        raise GolowError(f"the network does not call its layer {layer!r}", "name another one.")
    given, named = calls[0]
    if named or not given or not all(isinstance(item, Tensor) for item in given):
        raise GolowError(
            f"the layer {layer!r} takes something other than tensors", "name a layer inside it."
        )
    return given

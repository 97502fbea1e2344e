"""Refuses a model whose outputs change their size with the values of its inputs: no level could
fill the same output with the results of other values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from golow.lower.capture.module_outputs import leaves_of
from golow.records.errors import GolowError
from golow.records.workload import Device
from golow.workload.trial import try_forward
from golow.workload.trying_out import Tried

TRIES = 2  # one batch of other values may give as many elements by chance
SHOWN = 3
NAMES = {
    "index": "indexing with a mask",
    "_unique": "unique",
    "_unique2": "unique",
    "unique_dim": "unique",
    "_local_scalar_dense": "item",
}
"""Names by which users know ATen's operations, where they differ."""


def require_fixed_sizes(module: nn.Module, tried: Tried, name: str, device: Device) -> None:
    """Raise `GolowError` if other values of the inputs give outputs of other sizes.

    The model's own random numbers stay. Values at which it fails prove nothing.
    """
    generator, batch = torch.Generator().manual_seed(0), tried.first
    end = len(batch.inputs) - tried.draws
    for _ in range(TRIES):
        values = (_other_values(tensor, generator) for tensor in batch.inputs[:end])
        other = batch._replace(inputs=(*values, *batch.inputs[end:]))
        try:
            with _layers_known(module) as path, _Sized(path) as sized:
                found = try_forward(module, other, name, device)
        except GolowError:
            return
        if not sized.calls:
            return
        pairs = zip_longest(_sizes(tried.output), _sizes(found), fillvalue="nothing")
        apart = next((pair for pair in pairs if pair[0] != pair[1]), None)
        if apart is not None:
            raise _varying(name, list(dict.fromkeys(sized.calls)), *apart)


def _varying(name: str, calls: list[str], first: str, second: str) -> GolowError:
    more = f" and {len(calls) - SHOWN} more" if len(calls) > SHOWN else ""
    return GolowError(
        f"the values of the inputs decide the size of an output of {name} by "
        f"{', '.join(calls[:SHOWN])}{more}: {first} for one batch, {second} for another",
        "return a fixed size, such as all elements and a mask (torch.where), or torch.topk; select "
        "elements outside of the model.",
    )


def _sizes(output: Any) -> list[str]:
    return ["x".join(map(str, leaf.shape)) or "a number" for leaf in leaves_of(output)]


def _other_values(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Random values from the range of the tensor's own; of whole numbers, which may be indices,
    from the range of their column, unless it has fewer than three, as a mask."""
    if tensor.is_complex() or tensor.dtype is torch.bool or not bool(tensor.isfinite().all()):
        return tensor
    random = torch.rand(tensor.shape, generator=generator)
    if tensor.is_floating_point():
        low, high = tensor.min(), tensor.max()
        return (low + random * (high - low)).to(tensor.dtype)
    low, high = tensor.long().aminmax(dim=0)
    found = (low + random.double() * (high - low + 1)).floor().long().minimum(high)
    return torch.where(high - low < 2, tensor, found.to(tensor.dtype))


class _Sized(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the operations for whose sizes, or Python numbers, values decide, with their layers.

    path: of the layer that runs, innermost last.
    """

    supports_higher_order_operators = True  # they call operators, which come here

    def __init__(self, path: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sizes: list[str] = []
        self._numbers: list[str] = []
        self._path = path

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return true: what a model compiles itself is compiled as without this."""
        return True

    @property
    def calls(self) -> list[str]:
        """Those that give sizes; numbers may be sizes, too, where there are no others."""
        return self._sizes or self._numbers

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if isinstance(func, torch._ops.OpOverload):
            self._note(func, args)
        return func(*args, **(kwargs or {}))

    def _note(self, func: torch._ops.OpOverload, args: tuple[Any, ...]) -> None:
        name = func._schema.name.partition("::")[2]
        layer = f"layer {self._path[-1]}" if self._path and self._path[-1] else "its forward"
        call = f"{NAMES.get(name, name)} in {layer}"
        if _has_size_of_values(func, args):
            self._sizes.append(call)
        elif torch.Tag.data_dependent_output in func.tags:
            self._numbers.append(call)


def _has_size_of_values(func: Any, args: tuple[Any, ...]) -> bool:
    if func is torch.ops.aten.index.Tensor:
        masks = (torch.bool, torch.uint8)
        return any(item is not None and item.dtype in masks for item in args[1])
    return torch.Tag.dynamic_output_shape in func.tags


@contextmanager
def _layers_known(module: nn.Module) -> Iterator[list[str]]:
    """The paths of the layers that run within the block, innermost last."""
    path: list[str] = []

    def leave(layer: nn.Module, given: Any, result: Any) -> None:
        path.pop()

    handles = []
    for name, layer in module.named_modules():
        handles.append(layer.register_forward_pre_hook(partial(_enter, path, name)))
        handles.append(layer.register_forward_hook(leave, always_call=True))
    try:
        yield path
    finally:
        for handle in handles:
            handle.remove()


def _enter(path: list[str], name: str, layer: nn.Module, given: Any) -> None:
    path.append(name)

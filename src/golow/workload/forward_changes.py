"""Side effects of a forward pass: changed inputs, parameters, buffers, Python attributes."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from golow.workload.attributes import Attributes, attributes_of, changed


@dataclass
class Changes:
    """Changes made by one pass. inputs: places of those that it changes in place. parameters: names
    of those whose memory it writes. assigned: names of the buffers that it replaces by other
    tensors. attributes: paths of those that it changes. draws: whether it draws random numbers."""

    inputs: tuple[int, ...] = ()
    parameters: tuple[str, ...] = ()
    assigned: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    draws: bool = False


@contextmanager
def watched(module: nn.Module) -> Iterator[Changes]:
    """Watch the module's next forward pass; the changes are known when the block ends."""
    found = Changes()
    start: list[_Start] = []

    def enter(_: nn.Module, given: tuple[Any, ...]) -> None:
        start.append(_Start.of(module, given))

    def leave(_: nn.Module, given: tuple[Any, ...], __: Any) -> None:
        start.pop().compare(module, given, found)

    handles = (module.register_forward_pre_hook(enter), module.register_forward_hook(leave))
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


@dataclass
class _Start:
    """State before the pass: versions count the writes to a tensor's memory."""

    inputs: list[tuple[int, Tensor]]
    parameters: dict[str, int]
    buffers: dict[str, Tensor]
    attributes: Attributes
    random: bytes

    @classmethod
    def of(cls, module: nn.Module, given: tuple[Any, ...]) -> _Start:
        return cls(
            [(_version(item), item.clone()) for item in given],
            {n: _version(weight) for n, weight in module.named_parameters() if not is_lazy(weight)},
            dict(module.named_buffers()),
            attributes_of(module),
            _random_state(),
        )

    def compare(self, module: nn.Module, given: tuple[Any, ...], found: Changes) -> None:
        found.inputs = tuple(
            place
            for place, (item, (version, copy)) in enumerate(zip(given, self.inputs, strict=True))
            if _version(item) != version or not same_values(item, copy)
        )
        found.parameters = tuple(
            name
            for name, parameter in module.named_parameters()
            if name in self.parameters and _version(parameter) != self.parameters[name]
        )
        found.assigned = tuple(
            name
            for name, buffer in module.named_buffers()
            if name in self.buffers and buffer is not self.buffers[name]
        )
        found.attributes = changed(self.attributes, attributes_of(module))
        found.draws = _random_state() != self.random


def same_values(one: Tensor, other: Tensor) -> bool:
    """True if they have the same form and hold the same; NaN equals NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not torch.equal(one.isnan(), other.isnan()):
        return False
    return torch.equal(one.nan_to_num(), other.nan_to_num())


def _random_state() -> bytes:
    """The states of the generators of PyTorch, NumPy and Python."""
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    on_gpu = torch.cuda.get_rng_state_all() if started else []
    states = [state.numpy().tobytes() for state in (torch.get_rng_state(), *on_gpu)]
    return b"".join((*states, pickle.dumps((np.random.get_state(), random.getstate()))))


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version

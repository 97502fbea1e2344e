"""The memory whose purpose an iteration's program knows, for the profiler's trace: the trace has
addresses alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import torch
from torch import Tensor, nn

from golow.worker.protocol import (
    GRADIENTS,
    INPUTS,
    OPTIMIZER_STATE,
    PARAMETERS,
    KnownBlock,
    Snapshot,
)

Known = tuple[str, str, Tensor]
"""A category, a name, and a tensor of it."""


def of_training(module: nn.Module, optimizer: torch.optim.Optimizer | None) -> Iterator[Known]:
    """Parameters and buffers, and in training their gradients and the optimizer's state."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        yield PARAMETERS, name, tensor
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            yield GRADIENTS, name, parameter.grad
        state = optimizer.state.get(parameter, {}) if optimizer is not None else {}
        for value in state.values():
            if isinstance(value, Tensor):
                yield OPTIMIZER_STATE, name, value


def of_batches(kind: str, batches: Iterable[Iterable[Tensor]]) -> Iterator[Known]:
    """The tensors of all batches."""
    for number, batch in enumerate(batches):
        for position, tensor in enumerate(batch):
            yield INPUTS, f"{kind} {position} of batch {number}", tensor


class Snapshots:
    """Tensors held at the end of each iteration, as the trace's metadata has them."""

    def __init__(self, on_device: bool) -> None:
        self._on_device = on_device
        self._taken: list[Snapshot] = []

    def take(self, iteration: int, known: Iterable[Known]) -> None:
        """The iteration of that number is over. Tensors that share memory are one block, with the
        first name."""
        kind = "cuda" if self._on_device else "cpu"
        blocks: dict[int, KnownBlock] = {}
        for category, name, tensor in known:
            storage = tensor.untyped_storage()
            address, size = storage.data_ptr(), storage.nbytes()
            if tensor.device.type == kind and size and address not in blocks:
                blocks[address] = KnownBlock(
                    category=category, name=name, address=address, bytes=size
                )
        self._taken.append(
            Snapshot(
                step=iteration,
                blocks=tuple(blocks.values()),
                allocated=torch.cuda.memory_allocated() if self._on_device else None,
                reserved=torch.cuda.memory_reserved() if self._on_device else None,
            )
        )

    def encoded(self) -> str:
        """All of them, as JSON."""
        return msgspec.json.encode(self._taken).decode()

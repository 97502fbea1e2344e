"""A training step of all ranks in one process, for the reference: every rank's samples in turn, the
mean of their gradients, and running statistics of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from golow.levels.torch.batches import Batch


class Result(NamedTuple):
    """Loss and output of a rank's forward pass."""

    loss: Tensor
    output: Any


class AllRanks:
    """The batches of every rank, [rank][batch], and its buffers while another one's are in the
    module."""

    def __init__(self, module: nn.Module, batches: Sequence[Sequence[Batch]]) -> None:
        self._module, self._batches = module, batches
        self._buffers: list[dict[str, Tensor]] = []
        self.results: list[Result] = []
        self.reset()

    @property
    def count(self) -> int:
        """The number of ranks."""
        return len(self._batches)

    def reset(self) -> None:
        """Give every rank the buffers that the module has now."""
        self._buffers = [self._copied() for _ in self._batches]
        self.results = []

    def turns(self, index: int) -> Iterator[Batch]:
        """The batch of each rank, whose buffers are in the module until the next one is requested;
        then those of rank 0."""
        self.results = []
        for rank, batches in enumerate(self._batches):
            self._put(rank)
            yield batches[index]
            self._buffers[rank] = self._copied()
        self._put(0)

    def with_buffers(self) -> Iterator[tuple[int, Result]]:
        """The last results by rank, whose buffers are in the module meanwhile."""
        for rank, result in enumerate(self.results):
            self._put(rank)
            yield rank, result
        self._put(0)

    def _copied(self) -> dict[str, Tensor]:
        return {name: buffer.clone() for name, buffer in self._module.named_buffers()}

    def _put(self, rank: int) -> None:
        with torch.no_grad():
            for name, buffer in self._module.named_buffers():
                buffer.copy_(self._buffers[rank][name])

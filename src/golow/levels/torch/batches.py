"""A batch of tensors, and what a source of batches can do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from golow.worker.marking import marked_span, values_of
from golow.worker.protocol import Marks

Write = Callable[[int, int], None]
"""Writes into the marked part of the batch with that index the values from that place of the row
on."""


class Batch(NamedTuple):
    """The tensors of one batch."""

    inputs: tuple[Tensor, ...]
    targets: tuple[Tensor, ...]


class Source(Protocol):
    """Gives each iteration its batch; ``str`` states how."""

    def take(self, index: int) -> Batch:
        """The batch with that index, on the device; on a GPU its copies are enqueued."""

    def seek(self, index: int) -> None:
        """Get ready for that index. Called between iterations, outside their time."""

    def marked(self, marks: Marks) -> AbstractContextManager[Write]:
        """A function that marks a batch before it is taken; leaving restores the batches."""


class Row(NamedTuple):
    """The row of values from which marks are taken, for batches of this many samples."""

    values: Tensor
    samples: int
    length: int

    @classmethod
    def of(cls, marks: Marks, samples: int) -> Row:
        """In float64, or in int64 for whole numbers."""
        return cls(torch.from_numpy(values_of(marks, samples)), samples, marks.length)

    def like(self, tensor: Tensor) -> Row:
        """As that tensor is: its type, on its device."""
        return self._replace(values=self.values.to(tensor.device, tensor.dtype))

    def window(self, start: int) -> Tensor:
        """The values of an iteration, [samples, length]."""
        size = self.samples * self.length
        return self.values[start : start + size].view(self.samples, self.length)


def marked_part(tensor: Tensor, marks: Marks) -> Tensor:
    """A view of the marked elements, [samples, length]."""
    samples = tensor.view(len(tensor), -1)
    return samples[:, marked_span(marks, samples.shape[1])]

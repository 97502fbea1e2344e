"""A batch of tensors, and what a source of batches can do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from torch import Tensor

from golow.worker.marking import marked_span
from golow.worker.protocol import Marks

Write = Callable[[int, float], None]
"""Writes a value into the marked part of the batch with that index."""


class Batch(NamedTuple):
    """The tensors of one batch."""

    inputs: tuple[Tensor, ...]
    targets: tuple[Tensor, ...]


class Source(Protocol):
    """Gives each iteration its batch; ``str`` says how."""

    def take(self, index: int) -> Batch:
        """The batch with that index, on the device; on a GPU its copies are enqueued."""

    def seek(self, index: int) -> None:
        """Get ready for that index. Called between iterations, outside their time."""

    def marked(self, marks: Marks) -> AbstractContextManager[Write]:
        """A function that marks a batch before it is taken; leaving restores the batches."""


def marked_part(tensor: Tensor, marks: Marks) -> Tensor:
    """A view of the marked elements, [samples, length]."""
    samples = tensor.view(len(tensor), -1)
    return samples[:, marked_span(marks, samples.shape[1])]

"""A batch of tensors: the inputs of a model and the targets of its loss."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """Inputs of the model and targets of the loss; the batch dimension comes first."""

    inputs: tuple[Tensor, ...]
    targets: tuple[Tensor, ...] = ()

"""Networks as functions from the inputs of a batch to its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from golow.lower.capture.module_outputs import leaves_of

Outputs = Callable[[tuple[Tensor, ...]], Sequence[Tensor]]


def outputs_of(module: nn.Module) -> Outputs:
    """The module's outputs for a batch, in PyTorch."""

    def call(inputs: tuple[Tensor, ...]) -> Sequence[Tensor]:
        with torch.inference_mode():
            found: Any = module(*inputs)
        return leaves_of(found)

    return call

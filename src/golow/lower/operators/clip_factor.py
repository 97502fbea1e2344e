"""Clipping by norm: what all gradients are multiplied by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST = 1e-6  # torch.nn.utils.clip_grad_norm_ adds it to the norm


class ClipFactor(Operator, frozen=True, kw_only=True):
    """norm over the norm of all gradients together, at most 1."""

    gradients: tuple[Ref, ...]
    norm: float

    @staticmethod
    def meaning(gradients: list[Tensor], norm: float) -> Tensor:
        import torch

        norms = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
        factor: Tensor = norm / (torch.linalg.vector_norm(norms) + SMALLEST)
        return factor.clamp(max=1.0)

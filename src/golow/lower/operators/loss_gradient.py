"""The gradient of the loss with respect to itself, where backward begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class LossGradient(Operator, frozen=True, kw_only=True):
    """The number one. A level that scales its loss, as training in float16 does, applies the scale
    here and nowhere else.

    `golow.lower.aten.translation` adds this node at capture; ATen has no name for it.
    """

    dtype: str

    @staticmethod
    def meaning(dtype: str) -> Tensor:
        import torch

        return torch.ones((), dtype=getattr(torch, dtype))

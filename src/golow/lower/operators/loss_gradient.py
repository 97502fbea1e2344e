"""The gradient of the loss with respect to itself, where backward begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class LossGradient(Operator, frozen=True, kw_only=True):
    """The number one; where gradients of several steps are added up, a share of it. A level that
    scales its loss, as training in float16 does, applies the scale here and nowhere else.

    `golow.lower.aten.translation` adds this node at capture; ATen has no name for it.
    """

    dtype: str
    share: float = 1.0

    @staticmethod
    def meaning(dtype: str, share: float = 1.0) -> Tensor:
        import torch

        return torch.full((), share, dtype=getattr(torch, dtype))

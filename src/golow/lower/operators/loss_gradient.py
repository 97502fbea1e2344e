"""The gradient of the loss with respect to itself, where backward begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class LossGradient(Operator, frozen=True, kw_only=True):
    """One. A level that scales its loss, as training in float16 does, puts the scale here, and
    here alone.

    `golow.lower.translation` makes it at capture; ATen has no name for it.
    """

    dtype: str

    @staticmethod
    def meaning(dtype: str) -> Tensor:
        import torch

        return torch.ones((), dtype=getattr(torch, dtype))

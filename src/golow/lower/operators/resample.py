"""An image or a volume in another size, and its gradient. Only the pass
`golow.lower.recognise.resampling` makes these: a level without it gets products with matrices of
weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

Mode = Literal["nearest", "linear"]
SMOOTH = {2: "bilinear", 3: "trilinear"}


class Resample(Operator, frozen=True, kw_only=True):
    """x [N, C, ...] with these sizes of its last axes: the nearest element, where each size is a
    multiple of the one before, or linear between the centres of elements."""

    x: Ref
    size: tuple[int, ...]
    mode: Mode

    @staticmethod
    def meaning(x: Tensor, size: tuple[int, ...], mode: Mode) -> Tensor:
        from torch.nn import functional

        if mode == "nearest":
            return functional.interpolate(x, size)
        return functional.interpolate(x, size, mode=SMOOTH[len(size)], align_corners=False)


class ResampleBackward(Operator, frozen=True, kw_only=True):
    """The gradient of x. size: of x's last axes."""

    gradient_of = Resample

    gradient: Ref
    size: tuple[int, ...]
    mode: Mode

    @staticmethod
    def meaning(gradient: Tensor, size: tuple[int, ...], mode: Mode) -> Tensor:
        import torch

        axes = len(size)
        name = f"nearest{axes}d" if mode == "nearest" else f"{SMOOTH[axes]}{axes}d"
        call: Any = getattr(torch.ops.aten, f"upsample_{name}_backward").default
        align = [] if mode == "nearest" else [False]
        found: Tensor = call(gradient, gradient.shape[2:], [*gradient.shape[:2], *size], *align)
        return found

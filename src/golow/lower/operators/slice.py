"""A range of a tensor along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Slice(Operator, frozen=True, kw_only=True):
    """Elements ``start:stop:step`` of x along an axis, where 0 <= start <= stop <= size."""

    is_view = True

    x: Ref
    axis: int
    start: int
    stop: int
    step: int

    @staticmethod
    def meaning(x: Tensor, axis: int, start: int, stop: int, step: int) -> Tensor:
        import torch

        result: Tensor = torch.ops.aten.slice.Tensor(x, axis, start, stop, step)
        return result


def sliced(call: Call) -> Slice:
    """``slice(self, dim, start, end, step)``."""
    axis = call.axis("dim")
    size = call.shape("self")[axis]
    asked = (None if call.given(n) is None else call.integer(n) for n in ("start", "end"))
    start, stop, _ = slice(*asked).indices(size)
    return Slice(
        x=call.ref("self"), axis=axis, start=start, stop=max(start, stop), step=call.integer("step")
    )


SPELLINGS = {"aten.slice.Tensor": sliced}

"""Rows of a tensor by their indices (embeddings, ``index_select``), and adding to rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Take(Operator, frozen=True, kw_only=True):
    """x at these indices along an axis, which the axes of ``index`` replace. Indices are integers
    from 0 to below the size of the axis."""

    x: Ref
    index: Ref
    axis: int

    @staticmethod
    def meaning(x: Tensor, index: Tensor, axis: int) -> Tensor:
        shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
        return x.index_select(axis, index.reshape(-1)).reshape(shape)


class TakeBackward(Operator, frozen=True, kw_only=True):
    """The gradient of x: for each row the sum of the gradients of those that were taken from it.
    size: that of the axis; skipped: an index that gets none, or -1."""

    gradient_of = Take

    gradient: Ref
    index: Ref
    axis: int
    size: int
    skipped: int = -1

    @staticmethod
    def meaning(gradient: Tensor, index: Tensor, axis: int, size: int, skipped: int) -> Tensor:
        inner = gradient.shape[axis + index.dim() :]
        flat, places = gradient.reshape(*gradient.shape[:axis], -1, *inner), index.reshape(-1)
        result = gradient.new_zeros(*gradient.shape[:axis], size, *inner)
        result = result.index_add(axis, places, flat)
        return result if skipped < 0 else result.index_fill(axis, places.new_full((), skipped), 0)


class AddRows(Operator, frozen=True, kw_only=True):
    """x with a gradient of `Take` added: for each row the sum of the gradients of those that were
    taken from it. skipped: an index that gets none, or -1."""

    x: Ref
    gradient: Ref
    index: Ref
    axis: int
    skipped: int = -1

    @staticmethod
    def meaning(x: Tensor, gradient: Tensor, index: Tensor, axis: int, skipped: int) -> Tensor:
        return x + TakeBackward.meaning(gradient, index, axis, x.shape[axis], skipped)


def embedding(call: Call) -> Take:
    """``embedding(weight, indices)``; a padding index matters only to the gradient."""
    return Take(x=call.ref("weight"), index=call.ref("indices"), axis=0)


def selected(call: Call) -> Take | None:
    """``index_select(self, dim, index)``."""
    if not call.rank("self"):
        return None
    return Take(x=call.ref("self"), index=call.ref("index"), axis=call.axis("dim"))


def embedding_backward(call: Call) -> TakeBackward | None:
    """``embedding_dense_backward``, unless gradients are scaled by frequency."""
    if call.flag("scale_grad_by_freq"):
        return None
    return TakeBackward(
        gradient=call.ref("grad_output"),
        index=call.ref("indices"),
        axis=0,
        size=call.integer("num_weights"),
        skipped=call.integer("padding_idx"),
    )


SPELLINGS = {
    "aten.embedding.default": embedding,
    "aten.index_select.default": selected,
    "aten.embedding_dense_backward.default": embedding_backward,
}

"""A tensor filled with one number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Fill(Operator, frozen=True, kw_only=True):
    """A tensor of this shape and dtype, filled with one number."""

    shape: tuple[int, ...]
    value: float
    dtype: str

    @staticmethod
    def meaning(shape: tuple[int, ...], value: float, dtype: str) -> Tensor:
        import torch

        return torch.full(tuple(shape), value, dtype=getattr(torch, dtype))


def full(call: Call) -> Fill:
    """``full(size, fill_value)``."""
    return _spelled(call, _truth_or_number(call, "fill_value"))


def scalar(call: Call) -> Fill:
    """``scalar_tensor(s)``."""
    return _spelled(call, _truth_or_number(call, "s"))


def ones(call: Call) -> Fill:
    """``ones(size)``, also with the shape or dtype of another tensor."""
    return _spelled(call, 1.0)


def zeros(call: Call) -> Fill:
    """``zeros(size)``."""
    return _spelled(call, 0.0)


def _truth_or_number(call: Call, name: str) -> float:
    item = call.given(name)
    return float(item) if isinstance(item, bool) else call.number(name)


def _spelled(call: Call, value: float) -> Fill:
    output = call.output()
    return Fill(shape=output.shape, value=value, dtype=output.dtype)


SPELLINGS = {
    "aten.full.default": full,
    "aten.ones.default": ones,
    "aten.new_ones.default": ones,
    "aten.ones_like.default": ones,
    "aten.zeros.default": zeros,
    "aten.zeros_like.default": zeros,
    # Their content before something is written over it may be anything.
    "aten.empty.memory_format": zeros,
    "aten.empty_like.default": zeros,
    "aten.new_empty.default": zeros,
    "aten.new_zeros.default": zeros,
    "aten.full_like.default": full,
    "aten.new_full.default": full,
    "aten.scalar_tensor.default": scalar,
}

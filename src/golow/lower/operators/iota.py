"""Numbers in equal steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Iota(Operator, frozen=True, kw_only=True):
    """start, start + step, ...: this many numbers."""

    start: int | float
    step: int | float
    count: int
    dtype: str

    @staticmethod
    def meaning(start: float, step: float, count: int, dtype: str) -> Tensor:
        import torch

        kind = torch.int64 if isinstance(start, int) and isinstance(step, int) else torch.float64
        numbers = torch.arange(count, dtype=kind) * step + start
        return numbers.to(getattr(torch, dtype))


def arange(call: Call) -> Iota:
    """``arange(start, end, step)``."""
    names = call.names
    return Iota(
        start=_number(call, "start") if "start" in names else 0,
        step=_number(call, "step") if "step" in names else 1,
        count=call.output().shape[0],
        dtype=call.output().dtype,
    )


def _number(call: Call, name: str) -> int | float:
    item = call.given(name)
    return item if type(item) is int else call.number(name)


def iota(call: Call) -> Iota:
    """``prims.iota(length, start, step)``."""
    return Iota(
        start=call.integer("start"),
        step=call.integer("step"),
        count=call.integer("length"),
        dtype=call.output().dtype,
    )


SPELLINGS = {
    "aten.arange.default": arange,
    "aten.arange.start": arange,
    "aten.arange.start_step": arange,
    "prims.iota.default": iota,
}

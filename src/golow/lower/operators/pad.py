"""A tensor padded with a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Pad(Operator, frozen=True, kw_only=True):
    """x padded with ``value``. before, after: elements to add on each axis; negative numbers cut
    elements off."""

    x: Ref
    before: tuple[int, ...]
    after: tuple[int, ...]
    value: float

    @staticmethod
    def meaning(x: Tensor, before: tuple[int, ...], after: tuple[int, ...], value: float) -> Tensor:
        from torch.nn import functional

        sides = [n for pair in zip(before[::-1], after[::-1], strict=True) for n in pair]
        return functional.pad(x, sides, value=value)


def constant(call: Call) -> Pad:
    """``constant_pad_nd(self, pad, value)``."""
    return _spelled(call, call.number("value"))


def by_mode(call: Call) -> Pad | None:
    """``pad`` in the mode "constant"."""
    if call.text("mode") != "constant":
        return None
    return _spelled(call, 0.0 if call.given("value") is None else call.number("value"))


def _spelled(call: Call, value: float) -> Pad:
    """ATen lists the last axis first and omits leading axes that stay as they are."""
    sides = call.integers("pad")
    others = (0,) * (call.rank("self") - len(sides) // 2)
    return Pad(
        x=call.ref("self"),
        before=others + sides[::2][::-1],
        after=others + sides[1::2][::-1],
        value=value,
    )


SPELLINGS = {"aten.constant_pad_nd.default": constant, "aten.pad.default": by_mode}

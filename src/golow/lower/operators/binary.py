"""Arithmetic of two values, or of a value and a number, with a fused activation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from golow.lower.ir.graph import Activation, Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.activation import activated
from golow.lower.operators.pointwise import Pointwise, of_two

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


Function = Literal["add", "subtract", "multiply", "divide"]


class Binary(Operator, frozen=True, kw_only=True):
    """activation(a OP b), where b may be a number; shapes broadcast as in PyTorch. Both have the
    result's dtype. Integers are allowed: batch norm counts its batches."""

    function: Function
    a: Ref
    b: Ref | int | float
    activation: Activation | None = None

    @staticmethod
    def meaning(
        function: Function, a: Tensor, b: Tensor | float, activation: Activation | None
    ) -> Tensor:
        import torch

        operation: Any = {
            "add": torch.add,
            "subtract": torch.sub,
            "multiply": torch.mul,
            "divide": torch.div,
        }[function]
        return activated(operation(a, b), activation)


def arithmetic(call: Call, function: Function) -> Binary | Pointwise | None:
    """``add``, ``sub``, ``mul``, ``div`` of tensors, or of a tensor and a number. What converts
    types, computes with integers or repeats its first argument is a `Pointwise`."""
    if "alpha" in call.names and call.number("alpha") != 1:
        return None
    other = call.given("other")
    if not _is_plain(call, function):
        return of_two(call, function)
    if not isinstance(other, Ref) and type(other) is not int:
        other = call.number("other")
    return Binary(function=function, a=call.ref("self"), b=other)


def _is_plain(call: Call, function: Function) -> bool:
    other, output = call.given("other"), call.output()
    if not isinstance(call.given("self"), Ref):
        return False
    if not isinstance(other, Ref):
        counts = output.dtype == "int64" and function == "add" and other == 1
        by_zero = function == "divide" and other == 0
        return call.same_dtype("self") and (_is_floating(call) or counts) and not by_zero
    if not call.same_dtype("self", "other") or not _is_floating(call):
        return False
    if call.shape("self") == output.shape:
        return True
    return function in ("add", "multiply") and call.shape("other") == output.shape


def _is_floating(call: Call) -> bool:
    return call.output().dtype in ("float32", "float64")


def negative(call: Call) -> Binary | Pointwise:
    """``neg``, which equals the product with -1 exactly."""
    if not _is_floating(call):
        operands = (call.ref("self"), -1)
        return Pointwise(function="multiply", operands=operands, dtype=call.output().dtype)
    return Binary(function="multiply", a=call.ref("self"), b=-1)


NAMES: dict[Function, str] = {"add": "add", "subtract": "sub", "multiply": "mul", "divide": "div"}

SPELLINGS = {
    **{
        f"aten.{name}.{kind}": partial(arithmetic, function=function)
        for function, name in NAMES.items()
        for kind in ("Tensor", "Scalar")
    },
    "aten.neg.default": negative,
}

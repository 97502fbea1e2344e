"""A standalone activation and its gradient. The functions are in ``activations/``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Activation, Ref
from golow.lower.ir.operator import Operator, activation_functions

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Activate(Operator, frozen=True, kw_only=True):
    """activation(x), element by element."""

    x: Ref
    activation: Activation

    @staticmethod
    def meaning(x: Tensor, activation: Activation) -> Tensor:
        return activated(x, activation)


class ActivateBackward(Operator, frozen=True, kw_only=True):
    """gradient * activation'. value: the activation's result, or its argument."""

    gradient_of = Activate

    gradient: Ref
    value: Ref
    activation: Activation
    from_result: bool

    @staticmethod
    def meaning(
        gradient: Tensor, value: Tensor, activation: Activation, from_result: bool
    ) -> Tensor:
        function = activation_functions()[activation.name]
        if function.reads not in ("either", "result" if from_result else "argument"):
            raise ValueError(f"{activation.name} has no gradient from that value")
        result: Tensor = function.backward(gradient, value, *activation.numbers)
        return result


def activated(x: Tensor, activation: Activation | None) -> Tensor:
    """The activation of x; x itself if there is none."""
    if activation is None:
        return x
    function = activation_functions()[activation.name]
    result: Tensor = function.forward(x, *activation.numbers)
    return result


def of_call(call: Call, activation: Activation | None) -> Activate | None:
    """The operator for an ATen call of this activation; None where it computes with integers."""
    if not call.value("self").dtype.startswith(("float", "bfloat")):
        return None
    return None if activation is None else Activate(x=call.ref("self"), activation=activation)


def backward_of_argument(call: Call, activation: Activation | None) -> ActivateBackward | None:
    """The operator for an ATen call of a gradient that reads the activation's argument."""
    return gradient_of(call, activation, "self", from_result=False)


def backward_of_result(call: Call, activation: Activation) -> ActivateBackward | None:
    """The operator for an ATen call of a gradient that reads the activation's result."""
    return gradient_of(call, activation, "output", from_result=True)


def gradient_of(
    call: Call, activation: Activation | None, value: str, *, from_result: bool
) -> ActivateBackward | None:
    """The operator for an ATen call of a gradient. value: the argument that it reads. None where
    the gradient has another shape than that, as in derivatives that vmap takes of all outputs: ATen
    broadcasts the two."""
    if activation is None or call.value("grad_output").shape != call.value(value).shape:
        return None
    return ActivateBackward(
        gradient=call.ref("grad_output"),
        value=call.ref(value),
        activation=activation,
        from_result=from_result,
    )

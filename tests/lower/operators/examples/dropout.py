"""Examples of dropout that is on."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import Tensor

from golow.lower.operators.dropout import Dropout, DropoutBackward
from support.graphs.drawn_arguments import IMAGE, Differentiated, Drawn, Named, X, elements, of_one
from support.graphs.one_call import tensor

RECORDS = (Dropout(x=X, probability=0.5), DropoutBackward(gradient=X, mask=X, scale=2.0))


@st.composite
def _dropout_backward(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    return Drawn({"grad_output": x, "mask": x > 0, "scale": draw(st.sampled_from([1.0, 2.0]))})


CALLS = {
    "aten.native_dropout.default": of_one(
        "input", p=st.sampled_from([0.0, 0.3, 1.0]), train=st.sampled_from([True, None])
    ),
    "aten.native_dropout_backward.default": _dropout_backward(),
}

LEFT = {"dropout that is off": ("aten.native_dropout.default", IMAGE, 0.5, False)}


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    probability = draw(st.sampled_from([0.0, 0.25, 0.5]))

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        return {"gradient": gradient, "mask": results[1], "scale": 1 / (1 - probability)}

    return Differentiated({"x": tensor(4, 5), "probability": probability}, ("x",), backward)


GRADIENTS = {DropoutBackward: _gradient()}

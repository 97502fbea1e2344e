"""Examples of softmax and of its logarithm."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.lower.operators.softmax import Softmax, SoftmaxBackward
from support.graphs.drawn_arguments import (
    IMAGE,
    Differentiated,
    Drawn,
    Named,
    X,
    axis_of,
    elements,
    some,
)
from support.graphs.one_call import tensor

RECORDS = (
    Softmax(x=X, axis=1, log=True),
    SoftmaxBackward(gradient=X, result=X, axis=0, log=False),
)


@st.composite
def _softmax(draw: st.DrawFn, **further: Any) -> Drawn:
    x = draw(elements())
    return Drawn({"self": x, "dim": axis_of(draw, x)} | further)


@st.composite
def _softmax_backward(draw: st.DrawFn, log: bool) -> Drawn:
    x = draw(elements())
    axis = axis_of(draw, x)
    result = x.log_softmax(axis) if log else x.softmax(axis)
    given = {"grad_output": tensor(*x.shape, seed=1), "output": result, "dim": axis}
    return Drawn(given | {"input_dtype": torch.float64})


CALLS = {
    "aten.softmax.int": _softmax(dtype=None),
    "aten.log_softmax.int": _softmax(dtype=None),
    "aten._softmax.default": _softmax(half_to_float=False),
    "aten._log_softmax.default": _softmax(half_to_float=False),
    "aten._softmax_backward_data.default": _softmax_backward(log=False),
    "aten._log_softmax_backward_data.default": _softmax_backward(log=True),
}

LEFT = {
    "into another dtype": ("aten.softmax.int", IMAGE.float(), 1, torch.float64),
    "logarithm, into another dtype": ("aten.log_softmax.int", IMAGE.float(), 1, torch.float64),
}

LAYERS = (nn.Softmax(1), nn.LogSoftmax(-1))


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    log, axis = draw(some), draw(st.integers(0, 2))

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        return {"gradient": gradient, "result": results[0], "axis": axis, "log": log}

    return Differentiated({"x": tensor(2, 3, 4), "axis": axis, "log": log}, ("x",), backward)


GRADIENTS = {SoftmaxBackward: _gradient()}

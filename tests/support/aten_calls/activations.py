"""Activations, softmax and dropout, and their gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from hypothesis import strategies as st

from support.aten_calls.drawing import Drawn, axis_of, elements, numbers, of_one, some
from support.one_call import tensor


@st.composite
def gradient(draw: st.DrawFn, value: str, **further: Any) -> Drawn:
    x = draw(elements())
    given = {name: draw(item) for name, item in further.items()}
    return Drawn({"grad_output": tensor(*x.shape, seed=1), value: x} | given)


@st.composite
def bounds(draw: st.DrawFn, call: st.SearchStrategy[Drawn], defaults: bool) -> Drawn:
    low, high = (-1, 1) if defaults and draw(some) else (draw(numbers) - 4, draw(numbers) + 2)
    return Drawn(draw(call).named | {"min_val": low, "max_val": high})


@st.composite
def softmax(draw: st.DrawFn, **further: Any) -> Drawn:
    x = draw(elements())
    return Drawn({"self": x, "dim": axis_of(draw, x)} | further)


@st.composite
def softmax_backward(draw: st.DrawFn, log: bool) -> Drawn:
    x = draw(elements())
    axis = axis_of(draw, x)
    result = x.log_softmax(axis) if log else x.softmax(axis)
    given = {"grad_output": tensor(*x.shape, seed=1), "output": result, "dim": axis}
    return Drawn(given | {"input_dtype": torch.float64})


@st.composite
def dropout_backward(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    return Drawn({"grad_output": x, "mask": x > 0, "scale": draw(st.sampled_from([1.0, 2.0]))})


argument = partial(gradient, "self")
result = partial(gradient, "output")
elu_numbers = {"alpha": numbers, "scale": st.just(1), "input_scale": st.just(1)}
slopes = st.sampled_from([0.01, 0.3, 0, 1.5])
approximation = st.sampled_from(["none", "tanh"])


CALLS: dict[str, st.SearchStrategy[Drawn]] = {
    "aten.relu.default": of_one(),
    "aten.relu6.default": of_one(),
    "aten.hardtanh.default": bounds(of_one(), defaults=True),
    "aten.tanh.default": of_one(),
    "aten.sigmoid.default": of_one(),
    "aten.silu.default": of_one(),
    "aten.gelu.default": of_one(approximate=approximation),
    "aten.elu.default": of_one(**elu_numbers),
    "aten.leaky_relu.default": of_one(negative_slope=slopes),
    "aten.hardswish.default": of_one(),
    "aten.hardsigmoid.default": of_one(),
    "aten.threshold_backward.default": argument(threshold=st.sampled_from([0, 0.0])),
    "aten.hardtanh_backward.default": bounds(argument(), defaults=False),
    "aten.tanh_backward.default": result(),
    "aten.sigmoid_backward.default": result(),
    "aten.silu_backward.default": argument(),
    "aten.gelu_backward.default": argument(approximate=approximation),
    "aten.elu_backward.default": gradient(
        "self_or_result", is_result=st.just(False), **elu_numbers
    ),
    "aten.leaky_relu_backward.default": argument(
        negative_slope=slopes, self_is_result=st.just(False)
    ),
    "aten.hardswish_backward.default": argument(),
    "aten.hardsigmoid_backward.default": argument(),
    "aten.softmax.int": softmax(dtype=None),
    "aten.log_softmax.int": softmax(dtype=None),
    "aten._softmax.default": softmax(half_to_float=False),
    "aten._log_softmax.default": softmax(half_to_float=False),
    "aten._softmax_backward_data.default": softmax_backward(log=False),
    "aten._log_softmax_backward_data.default": softmax_backward(log=True),
    "aten.native_dropout.default": of_one(
        "input", p=st.sampled_from([0.0, 0.3, 1.0]), train=st.sampled_from([True, None])
    ),
    "aten.native_dropout_backward.default": dropout_backward(),
    "aten.dropout.default": of_one("input", p=st.just(0.3), train=st.just(False)),
}  # fmt: skip

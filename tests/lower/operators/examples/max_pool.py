"""Examples of max pooling."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.lower.operators.max_pool import MaxPool, MaxPoolBackward
from support.graphs.drawn_arguments import (
    PLAIN,
    Differentiated,
    Drawn,
    Named,
    X,
    image,
    pair,
    pairs,
    some,
)
from support.graphs.one_call import tensor

_WINDOW: dict[str, Any] = {
    "kernel": (1, 1), "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "ceil": True
}  # fmt: skip

RECORDS = (
    MaxPool(x=X, indices=True, **_WINDOW),
    MaxPoolBackward(gradient=X, x=X, indices=X, **_WINDOW),
)


@st.composite
def _pool(draw: st.DrawFn, results: int | None = None) -> Drawn:
    named = {
        "kernel_size": draw(pair(2, 3)),
        "self": draw(image()),
        "stride": draw(st.one_of(st.just([]), pair(1, 3))),
        "padding": draw(pair(0, 1)),
        "ceil_mode": draw(some),
        "dilation": draw(pair(1, 2)),
    }
    return Drawn(named, results)


@st.composite
def _pool_backward(draw: st.DrawFn) -> Drawn:
    named = draw(_pool()).named
    # Nothing else may read the indices, so they are an input of the graph.
    largest, places = torch.ops.aten.max_pool2d_with_indices.default(**named)
    return Drawn(named | {"grad_output": tensor(*largest.shape, seed=1), "indices": places})


CALLS = {
    "aten.max_pool2d.default": _pool(),
    "aten.max_pool2d_with_indices.default": _pool(results=1),
    "aten.max_pool2d_with_indices_backward.default": _pool_backward(),
}

LEFT = {
    "image without a batch": ("aten.max_pool2d.default", PLAIN, [2, 2]),
    "image without a batch, with indices": (
        "aten.max_pool2d_with_indices.default", PLAIN, [2, 2]
    ),
}  # fmt: skip

LAYERS = (nn.MaxPool2d(2, ceil_mode=True),)


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    x = tensor(1, 2, draw(st.integers(5, 7)), draw(st.integers(5, 7)))
    settings: Named = {
        "kernel": draw(pairs(2, 3)), "stride": draw(pairs(1, 3)), "padding": draw(pairs(0, 1)),
        "ceil": draw(some), "dilation": draw(pairs(1, 2)),
    }  # fmt: skip

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        return {"gradient": gradient, "x": x, **settings, "indices": results[1]}

    return Differentiated({"x": x, **settings, "indices": True}, ("x",), backward)


GRADIENTS = {MaxPoolBackward: _gradient()}

"""Examples of average pooling."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.lower.operators.average_pool import AveragePool, AveragePoolBackward
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

_WINDOW: dict[str, Any] = {"kernel": (1, 1), "stride": (1, 1), "padding": (1, 1), "ceil": True}

RECORDS = (
    AveragePool(x=X, with_padding=True, divisor=2, **_WINDOW),
    AveragePoolBackward(gradient=X, x=X, with_padding=True, divisor=None, **_WINDOW),
)


@st.composite
def _pool(draw: st.DrawFn) -> Drawn:
    return Drawn({
        "kernel_size": draw(pair(2, 3)),
        "self": draw(image()),
        "stride": draw(st.one_of(st.just([]), pair(1, 3))),
        "padding": draw(pair(0, 1)),
        "ceil_mode": draw(some),
        "divisor_override": draw(st.sampled_from([None, 1, 3])),
        "count_include_pad": draw(some),
    })  # fmt: skip


@st.composite
def _pool_backward(draw: st.DrawFn) -> Drawn:
    named = draw(_pool()).named
    result = torch.ops.aten.avg_pool2d.default(**named)
    return Drawn(named | {"grad_output": tensor(*result.shape, seed=1)})


CALLS = {"aten.avg_pool2d.default": _pool(), "aten.avg_pool2d_backward.default": _pool_backward()}

LEFT = {"image without a batch": ("aten.avg_pool2d.default", PLAIN, [2, 2])}

LAYERS = (nn.AvgPool2d(3, 1, padding=1, count_include_pad=False),)


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    x = tensor(1, 2, draw(st.integers(5, 7)), draw(st.integers(5, 7)))
    settings: Named = {
        "kernel": draw(pairs(2, 3)), "stride": draw(pairs(1, 3)), "padding": draw(pairs(0, 1)),
        "ceil": draw(some), "divisor": draw(st.sampled_from([None, 3])),
        "with_padding": draw(some),
    }  # fmt: skip

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        return {"gradient": gradient, "x": x, **settings}

    return Differentiated({"x": x, **settings}, ("x",), backward)


GRADIENTS = {AveragePoolBackward: _gradient()}

"""Examples of average pooling to a given size."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import Tensor, nn

from golow.lower.operators.adaptive_average_pool import (
    AdaptiveAveragePool,
    AdaptiveAveragePoolBackward,
)
from support.graphs.drawn_arguments import PLAIN, Differentiated, Drawn, Named, X, image, pairs
from support.graphs.one_call import tensor

RECORDS = (
    AdaptiveAveragePool(x=X, size=(1, 1)),
    AdaptiveAveragePoolBackward(gradient=X, shape=(1, 2, 3, 4)),
)


@st.composite
def _pool(draw: st.DrawFn) -> Drawn:
    size = [draw(st.integers(1, 9)), draw(st.integers(1, 9))]
    return Drawn({"self": draw(image()), "output_size": size})


@st.composite
def _pool_backward(draw: st.DrawFn) -> Drawn:
    x, size = draw(_pool()).named.values()
    return Drawn({"self": x, "grad_output": tensor(*x.shape[:2], *size, seed=1)})


CALLS = {
    "aten.adaptive_avg_pool2d.default": _pool(),
    "aten._adaptive_avg_pool2d.default": _pool(),
    "aten._adaptive_avg_pool2d_backward.default": _pool_backward(),
}

LEFT = {"image without a batch": ("aten.adaptive_avg_pool2d.default", PLAIN, [2, 2])}

LAYERS = (nn.AdaptiveAvgPool2d((2, 3)),)


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    x, size = tensor(2, 2, *draw(pairs(1, 6))), draw(pairs(1, 7))

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        return {"gradient": gradient, "shape": tuple(x.shape)}

    return Differentiated({"x": x, "size": size}, ("x",), backward)


GRADIENTS = {AdaptiveAveragePoolBackward: _gradient()}

"""Examples of layer norm."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from golow.lower.operators.layer_norm import LayerNorm, LayerNormBackward
from support.graphs.drawn_arguments import Differentiated, Drawn, Named, X, some
from support.graphs.one_call import tensor

RECORDS = (
    LayerNorm(x=X, weight=X, bias=None, axes=1, epsilon=1e-5),
    LayerNormBackward(gradient=X, x=X, mean=X, deviation=X, weight=X, bias=None, axes=1),
)


@st.composite
def _norm(draw: st.DrawFn) -> Drawn:
    x, axes = tensor(2, 3, 4), draw(st.integers(1, 2))
    shape = list(x.shape[3 - axes :])
    return Drawn({
        "input": x, "normalized_shape": shape,
        "weight": tensor(*shape) if draw(some) else None,
        "bias": tensor(*shape, seed=1) if draw(some) else None,
        "eps": draw(st.sampled_from([1e-5, 1e-2])),
    })  # fmt: skip


@st.composite
def _norm_backward(draw: st.DrawFn) -> Drawn:
    named = draw(_norm()).named
    _, mean, deviation = torch.ops.aten.native_layer_norm.default(**named)
    named.pop("eps")
    mask = [True, named["weight"] is not None, named["bias"] is not None]
    further = {"grad_out": tensor(2, 3, 4, seed=1), "mean": mean, "rstd": deviation}
    return Drawn(named | further | {"output_mask": mask})


CALLS = {
    "aten.native_layer_norm.default": _norm(),
    "aten.native_layer_norm_backward.default": _norm_backward(),
}


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    axes = draw(st.integers(1, 2))
    shape = (2, 3, 4)[3 - axes :]
    affine = draw(some)
    weight, bias = (tensor(*shape), tensor(*shape, seed=1)) if affine else (None, None)
    x = tensor(2, 3, 4)

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        return {
            "gradient": gradient, "x": x, "mean": results[1], "deviation": results[2],
            "weight": weight, "bias": bias, "axes": axes,
        }  # fmt: skip

    given = {"x": x, "weight": weight, "bias": bias, "axes": axes, "epsilon": 1e-3}
    return Differentiated(given, ("x", "weight", "bias"), backward, (True, affine, affine))


GRADIENTS = {LayerNormBackward: _gradient()}

"""Examples of batch norm, in inference and in training."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from torch import Tensor

from golow.lower.ir.graph import Activation
from golow.lower.operators.batch_norm import BatchNorm, BatchNormBackward, BatchNormInference
from support.graphs.drawn_arguments import IMAGE, Differentiated, Drawn, Named, X, some
from support.graphs.one_call import tensor
from support.graphs.written_graphs import RELU

RECORDS = (
    BatchNormInference(x=X, scale=X, shift=X, mean=X, variance=X, epsilon=1e-5),
    BatchNorm(
        x=X, scale=X, shift=None, running_mean=X, running_variance=X, momentum=0.1, epsilon=1e-5,
        residual=X, activation=RELU,
    ),
    BatchNormBackward(
        gradient=X, x=X, scale=None, mean=X, inverse_deviation=X, epsilon=1e-5,
        wanted=(True, False, True, False), second=X, result=X, activation=RELU, step=(1, 1),
    ),
)  # fmt: skip


@st.composite
def _norm(draw: st.DrawFn, results: int | None = None, **further: Any) -> Drawn:
    """Of [N, C] or [N, C, H, W]; signals and volumes are unfolded to the latter."""
    x = tensor(3, 4, *draw(st.sampled_from([(), (2, 3)])))
    named = {
        "input": x,
        "weight": tensor(4) if draw(some) else None,
        "bias": tensor(4, seed=1) if draw(some) else None,
        "running_mean": tensor(4, seed=2),
        "running_var": tensor(4, seed=3).abs() + 0.5,
        "momentum": 0.25,
        "eps": draw(st.sampled_from([1e-5, 1e-2])),
    }
    return Drawn(named | further, results)


@st.composite
def _norm_backward(draw: st.DrawFn) -> Drawn:
    given = draw(_norm()).named
    x, axes = given["input"], [0, *range(2, given["input"].dim())]
    variance = x.var(axes, correction=0)
    kept = {name: given[name] for name in ("input", "weight", "running_mean", "running_var", "eps")}
    more = {
        "grad_out": tensor(*x.shape, seed=1),
        "save_mean": x.mean(axes),
        "save_invstd": (variance + given["eps"]).rsqrt(),
        "train": True,
        "output_mask": list(draw(st.tuples(some, some, some).filter(any))),
    }
    return Drawn(kept | more)


CALLS = {
    "aten.batch_norm.default": _norm(training=False, cudnn_enabled=True),
    "aten._native_batch_norm_legit_no_training.default": _norm(results=1),
    "aten._native_batch_norm_legit_functional.default": _norm(training=True),
    "aten.native_batch_norm_backward.default": _norm_backward(),
}

_CHANNELS = [tensor(4), tensor(4), tensor(4), tensor(4).abs() + 1]

LEFT = {
    "training in inference": (
        "aten.batch_norm.default", IMAGE, *_CHANNELS, True, 0.1, 1e-5, False
    ),
    "no training in training": (
        "aten._native_batch_norm_legit_functional.default", IMAGE, *_CHANNELS, False, 0.1, 1e-5
    ),
    "statistics are read": (
        "aten._native_batch_norm_legit_no_training.default", IMAGE, *_CHANNELS, 0.1, 1e-5
    ),
    "gradient without training": (
        "aten.native_batch_norm_backward.default", IMAGE, IMAGE, *_CHANNELS[:1], *_CHANNELS[2:],
        None, None, False, 1e-5, [True, True, True],
    ),
}  # fmt: skip

_CLIP = Activation(name="clip", numbers=(-0.5, 1.25))
# Gradients that read the argument, and the result, of which there is none.
_AGAIN = [Activation(name="silu"), Activation(name="tanh")]


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    shape = (4, 3, *draw(st.sampled_from([(), (2,), (2, 3)])))
    x = tensor(*shape)
    scale = tensor(3, seed=1) if draw(some) else None
    shift = tensor(3, seed=2) if scale is not None else None
    activation = draw(st.sampled_from([None, RELU, _CLIP, *_AGAIN]))
    residual = tensor(*shape, seed=4) if activation not in _AGAIN and draw(some) else None
    affine = scale is not None
    added = some if residual is not None else st.just(False)
    wanted = draw(st.tuples(some, st.just(affine), st.just(affine), added).filter(any))
    divided = draw(some)

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        y, mean, inverse_deviation = results[:3]
        part = tensor(*shape, seed=6)
        return {
            "gradient": gradient - part if divided else gradient,
            "second": part if divided else None,
            "x": x, "scale": scale, "mean": mean, "inverse_deviation": inverse_deviation,
            "epsilon": 1e-3, "wanted": wanted, "activation": activation,
            "result": None if activation in (None, *_AGAIN) else y,
            "shift": shift,
        }  # fmt: skip

    given = {
        "x": x, "scale": scale, "shift": shift, "running_mean": tensor(3),
        "running_variance": tensor(3).abs(), "momentum": 0.1, "epsilon": 1e-3,
        "residual": residual, "activation": activation,
    }  # fmt: skip
    return Differentiated(given, ("x", "scale", "shift", "residual"), backward, wanted)


GRADIENTS = {BatchNormBackward: _gradient()}

"""Batch norm and layer norm, and their gradients."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st

from support.aten_calls.drawing import Drawn, some
from support.one_call import tensor


@st.composite
def norm(draw: st.DrawFn, **further: Any) -> Drawn:
    """Of [N, C] or [N, C, H, W]; signals and volumes are unfolded to the latter."""
    results = further.pop("results", None)
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
def norm_backward(draw: st.DrawFn) -> Drawn:
    given = draw(norm()).named
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


@st.composite
def layer_norm(draw: st.DrawFn) -> Drawn:
    x, axes = tensor(2, 3, 4), draw(st.integers(1, 2))
    shape = list(x.shape[3 - axes :])
    return Drawn({
        "input": x, "normalized_shape": shape,
        "weight": tensor(*shape) if draw(some) else None,
        "bias": tensor(*shape, seed=1) if draw(some) else None,
        "eps": draw(st.sampled_from([1e-5, 1e-2])),
    })  # fmt: skip


@st.composite
def layer_norm_backward(draw: st.DrawFn) -> Drawn:
    named = draw(layer_norm()).named
    _, mean, deviation = torch.ops.aten.native_layer_norm.default(**named)
    named.pop("eps")
    mask = [True, named["weight"] is not None, named["bias"] is not None]
    further = {"grad_out": tensor(2, 3, 4, seed=1), "mean": mean, "rstd": deviation}
    return Drawn(named | further | {"output_mask": mask})


CALLS: dict[str, st.SearchStrategy[Drawn]] = {
    "aten.native_layer_norm.default": layer_norm(),
    "aten.native_layer_norm_backward.default": layer_norm_backward(),
    "aten.batch_norm.default": norm(training=False, cudnn_enabled=True),
    "aten._native_batch_norm_legit_no_training.default": norm(results=1),
    "aten._native_batch_norm_legit_functional.default": norm(training=True),
    "aten.native_batch_norm_backward.default": norm_backward(),
}  # fmt: skip

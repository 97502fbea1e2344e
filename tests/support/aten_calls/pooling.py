"""Pooling of images and its gradients."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from support.aten_calls.drawing import Drawn, Named, image, pair, some
from support.one_call import tensor


@st.composite
def pool(draw: st.DrawFn, maximum: bool, whole: bool = False) -> Drawn:
    kernel = draw(pair(2, 3))
    named: Named = {
        "self": draw(image()),
        "kernel_size": kernel,
        "stride": draw(st.one_of(st.just([]), pair(1, 3))),
        "padding": draw(pair(0, 1)),
        "ceil_mode": draw(some),
    }
    if maximum:
        return Drawn(named | {"dilation": draw(pair(1, 2))})
    divisor = draw(st.sampled_from([None, 1, 3]))
    return Drawn(named | {"count_include_pad": draw(some), "divisor_override": divisor})


@st.composite
def max_pool_backward(draw: st.DrawFn) -> Drawn:
    named = draw(pool(maximum=True)).named
    # Nothing else may read the indices, so they are an input of the graph.
    largest, places = torch.ops.aten.max_pool2d_with_indices.default(**named)
    return Drawn(named | {"grad_output": tensor(*largest.shape, seed=1), "indices": places})


@st.composite
def average_pool_backward(draw: st.DrawFn) -> Drawn:
    named = draw(pool(maximum=False)).named
    result = torch.ops.aten.avg_pool2d.default(**named)
    return Drawn(named | {"grad_output": tensor(*result.shape, seed=1)})


@st.composite
def adaptive_pool(draw: st.DrawFn) -> Drawn:
    size = [draw(st.integers(1, 9)), draw(st.integers(1, 9))]
    return Drawn({"self": draw(image()), "output_size": size})


@st.composite
def adaptive_pool_backward(draw: st.DrawFn) -> Drawn:
    x, size = draw(adaptive_pool()).named.values()
    return Drawn({"self": x, "grad_output": tensor(*x.shape[:2], *size, seed=1)})


CALLS: dict[str, st.SearchStrategy[Drawn]] = {
    "aten.max_pool2d.default": pool(maximum=True),
    "aten.max_pool2d_with_indices.default": pool(maximum=True).map(
        lambda drawn: Drawn(drawn.named, results=1)
    ),
    "aten.max_pool2d_with_indices_backward.default": max_pool_backward(),
    "aten.avg_pool2d.default": pool(maximum=False),
    "aten.avg_pool2d_backward.default": average_pool_backward(),
    "aten.adaptive_avg_pool2d.default": adaptive_pool(),
    "aten._adaptive_avg_pool2d.default": adaptive_pool(),
    "aten._adaptive_avg_pool2d_backward.default": adaptive_pool_backward(),
}  # fmt: skip

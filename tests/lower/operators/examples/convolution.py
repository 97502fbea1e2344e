"""Examples of convolutions of images."""

from __future__ import annotations

from functools import partial

from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from golow.lower.operators.convolution import Convolution, ConvolutionBackward
from support.graphs.drawn_arguments import (
    IMAGE,
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
from support.graphs.written_graphs import RELU

RECORDS = (
    Convolution(
        x=X, weight=X, bias=None, residual=X, stride=(1, 1), padding=(1, 2, 3, 4), dilation=(1, 1),
        groups=1, activation=RELU,
    ),
    ConvolutionBackward(
        gradient=X, x=X, weight=X, stride=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), groups=1,
        wanted=(True, True, False), compact=False,
    ),
)  # fmt: skip


@st.composite
def _convolution(draw: st.DrawFn, whole: bool = False) -> Drawn:
    groups = draw(st.sampled_from([1, 2, 4]))
    x, kernel = draw(image()), (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    sizes = partial(st.tuples, *[st.integers(1, 2)] * 2)
    named = {
        "input": x,
        "weight": tensor(8, 4 // groups, *kernel),
        "bias": tensor(8) if draw(some) else None,
        "stride": draw(pair(1, 2) if not whole else sizes().map(list)),
        "padding": draw(pair(0, 2) if not whole else sizes().map(list)),
        "dilation": draw(pair(1, 2) if not whole else sizes().map(list)),
        "groups": groups,
    }
    further = {"transposed": False, "output_padding": [0, 0]} if whole else {}
    return Drawn(named | further)


@st.composite
def _convolution_by_name(draw: st.DrawFn) -> Drawn:
    named = draw(_convolution()).named
    named["padding"] = draw(st.sampled_from(["valid", "same"]))
    if named["padding"] == "same":
        named["stride"] = [1, 1]
    return Drawn(named)


@st.composite
def _convolution_backward(draw: st.DrawFn) -> Drawn:
    named = draw(_convolution(whole=True)).named
    named.pop("bias")
    given = {name: named[name] for name in ("stride", "padding", "dilation", "groups")}
    result = functional.conv2d(named["input"], named["weight"], **given)
    wanted = draw(st.tuples(some, some, some).filter(any))
    more = {"grad_output": tensor(*result.shape, seed=1), "bias_sizes": [8]}
    return Drawn(named | more | {"output_mask": list(wanted)})


CALLS = {
    "aten.conv2d.default": _convolution(),
    "aten.convolution.default": _convolution(whole=True),
    "aten.conv2d.padding": _convolution_by_name(),
    "aten.convolution_backward.default": _convolution_backward(),
}

_KERNEL = tensor(4, 4, 3, 3)

LEFT = {
    "transposed": (
        "aten.convolution.default", IMAGE, _KERNEL, None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1
    ),
    "transposed, backward": (
        "aten.convolution_backward.default", tensor(2, 4, 8, 9), IMAGE, _KERNEL, [4], [1, 1],
        [0, 0], [1, 1], True, [0, 0], 1, [True, True, True],
    ),
    "one dimension": (
        "aten.convolution.default", PLAIN, tensor(3, 6, 2), None, [1], [0], [1], False, [0], 1
    ),
    "three dimensions": (
        "aten.convolution.default", tensor(1, 2, 3, 4, 5), tensor(2, 2, 2, 2, 2), None, [1, 1, 1],
        [0, 0, 0], [1, 1, 1], False, [0, 0, 0], 1,
    ),
    "image without a batch": ("aten.conv2d.default", PLAIN, _KERNEL),
    "image without a batch, padding by name": (
        "aten.conv2d.padding", PLAIN, _KERNEL, None, [1, 1], "same"
    ),
}  # fmt: skip

LAYERS = (
    nn.Conv2d(4, 6, 3, stride=2, padding=1),
    nn.Conv2d(4, 4, (1, 3), padding="same", dilation=2, bias=False),
)


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    groups = draw(st.sampled_from([1, 2]))
    top, left = draw(pairs(0, 2))
    settings = {
        "stride": draw(pairs(1, 2)), "padding": (top, left, top, left),
        "dilation": draw(pairs(1, 2)), "groups": groups,
    }  # fmt: skip
    x, weight = tensor(2, 2, 6, 5), tensor(4, 2 // groups, *draw(pairs(1, 3)), seed=1)
    wanted = draw(st.tuples(some, some, some).filter(any))

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        return {"gradient": gradient, "x": x, "weight": weight, **settings, "wanted": wanted}

    given = {"x": x, "weight": weight, "bias": tensor(4), **settings}
    fixed = {"residual": None, "activation": None}
    return Differentiated(given | fixed, ("x", "weight", "bias"), backward, wanted)


GRADIENTS = {ConvolutionBackward: _gradient()}

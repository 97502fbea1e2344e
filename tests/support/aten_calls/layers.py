"""Convolutions and products of matrices."""

from __future__ import annotations

from functools import partial

from hypothesis import strategies as st
from torch.nn import functional

from support.aten_calls.drawing import Drawn, image, pair, some
from support.one_call import Transposed, tensor


@st.composite
def convolution(draw: st.DrawFn, whole: bool = False) -> Drawn:
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
def convolution_by_name(draw: st.DrawFn) -> Drawn:
    named = draw(convolution()).named
    named["padding"] = draw(st.sampled_from(["valid", "same"]))
    if named["padding"] == "same":
        named["stride"] = [1, 1]
    return Drawn(named)


@st.composite
def convolution_backward(draw: st.DrawFn) -> Drawn:
    named = draw(convolution(whole=True)).named
    named.pop("bias")
    given = {name: named[name] for name in ("stride", "padding", "dilation", "groups")}
    result = functional.conv2d(named["input"], named["weight"], **given)
    wanted = draw(st.tuples(some, some, some).filter(any))
    more = {"grad_output": tensor(*result.shape, seed=1), "bias_sizes": [8]}
    return Drawn(named | more | {"output_mask": list(wanted)})


@st.composite
def linear(draw: st.DrawFn) -> Drawn:
    before = draw(st.lists(st.integers(1, 3), max_size=2))
    bias = tensor(5) if draw(some) else None
    return Drawn({"input": tensor(*before, 6), "weight": tensor(5, 6), "bias": bias})


def addmm() -> st.SearchStrategy[Drawn]:
    x = tensor(3, 6)
    return st.just(Drawn({"self": tensor(5), "mat1": x, "mat2": Transposed(tensor(5, 6))}))


@st.composite
def product(draw: st.DrawFn, batch: tuple[int, ...]) -> Drawn:
    m, k, n = (draw(st.integers(1, 4)) for _ in range(3))
    return Drawn({"self": tensor(*batch, m, k), "mat2": tensor(*batch, k, n, seed=1)})


CALLS: dict[str, st.SearchStrategy[Drawn]] = {
    "aten.conv2d.default": convolution(),
    "aten.convolution.default": convolution(whole=True),
    "aten.conv2d.padding": convolution_by_name(),
    "aten.convolution_backward.default": convolution_backward(),
    "aten.linear.default": linear(),
    "aten.addmm.default": addmm(),
    "aten.mm.default": product(()),
    "aten.bmm.default": product((2,)),
}  # fmt: skip

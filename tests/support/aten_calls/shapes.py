"""Copies, views, parts and constants."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st

from support.aten_calls.drawing import Drawn, axis_of, elements, image, of_one, shapes, some
from support.one_call import tensor


@st.composite
def shaped(draw: st.DrawFn, name: str) -> Drawn:
    """The same elements by another shape, one size of which may be left to find."""
    x = draw(elements())
    shape = draw(st.permutations(x.shape))
    if draw(some):
        shape = [*shape[:1], -1] if len(shape) > 1 else [-1, 1]
    return Drawn({"self": x, name: list(shape)})


@st.composite
def flatten(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    ends = sorted(draw(st.lists(st.integers(0, x.dim() - 1), min_size=2, max_size=2)))
    start, end = (axis - x.dim() if draw(some) else axis for axis in ends)
    return Drawn({"self": x, "start_dim": start, "end_dim": end})


@st.composite
def squeeze(draw: st.DrawFn, several: bool) -> Drawn:
    x = tensor(*draw(st.lists(st.sampled_from([1, 1, 3]), min_size=1, max_size=4)))
    axes = draw(st.lists(st.integers(0, x.dim() - 1), unique=True, min_size=1))
    axes = [axis - x.dim() if draw(some) else axis for axis in axes]
    return Drawn({"self": x, "dim": axes if several else axes[0]})


@st.composite
def unsqueeze(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    return Drawn({"self": x, "dim": draw(st.integers(-x.dim() - 1, x.dim()))})


@st.composite
def view_as(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    return Drawn({"self": x, "other": tensor(*draw(st.permutations(x.shape)))})


@st.composite
def permute(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    order = draw(st.permutations(range(x.dim())))
    return Drawn({"self": x, "dims": [a - x.dim() if draw(some) else a for a in order]})


@st.composite
def transpose(draw: st.DrawFn) -> Drawn:
    x = draw(st.one_of(elements(), st.just(torch.tensor(2.5))))
    ends = st.integers(-max(x.dim(), 1), max(x.dim(), 1) - 1)
    return Drawn({"self": x, "dim0": draw(ends), "dim1": draw(ends)})


def matrix_transpose() -> st.SearchStrategy[Drawn]:
    return st.sampled_from([(), (3,), (3, 4)]).map(lambda shape: Drawn({"self": tensor(*shape)}))


@st.composite
def expand(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes)
    kept = [draw(st.sampled_from([1, n])) for n in shape][draw(st.integers(0, len(shape))) :]
    first = len(shape) - len(kept)
    size = [
        -1 if i >= first and kept[i - first] == n and draw(some) else n for i, n in enumerate(shape)
    ]
    return Drawn({"self": tensor(*kept), "size": size})


@st.composite
def concatenation(draw: st.DrawFn) -> Drawn:
    shape = list(draw(shapes))
    axis = draw(st.integers(0, len(shape) - 1))
    sizes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    parts = [tensor(*shape[:axis], n, *shape[axis + 1 :], seed=n) for n in sizes]
    return Drawn({"tensors": parts, "dim": axis - len(shape) if draw(some) else axis})


@st.composite
def range_of(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    ends = st.one_of(st.none(), st.integers(-6, 6), st.just(2**63 - 1))
    given = {"start": draw(ends), "end": draw(ends), "step": draw(st.integers(1, 3))}
    return Drawn({"self": x, "dim": axis_of(draw, x)} | given)


@st.composite
def padded(draw: st.DrawFn, **further: Any) -> Drawn:
    x = draw(image())
    sides = draw(st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 2)), max_size=2))
    value = draw(st.sampled_from([0, 0.5, float("-inf")]))
    return Drawn({"self": x, "pad": [n for both in sides for n in both], "value": value} | further)


@st.composite
def filled(draw: st.DrawFn, **further: st.SearchStrategy[Any]) -> Drawn:
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.int64, None]))
    size = draw(st.one_of(st.just(()), shapes))
    given = {name: draw(item) for name, item in further.items()}
    return Drawn({"size": list(size), "dtype": dtype} | given)


CALLS: dict[str, st.SearchStrategy[Drawn]] = {
    "aten.clone.default": of_one(
        memory_format=st.sampled_from([None, torch.contiguous_format])
    ),
    "aten.contiguous.default": of_one(),
    "aten.detach.default": of_one(),
    "aten.alias.default": of_one(),
    "aten.lift_fresh_copy.default": of_one(),
    "aten.view.default": shaped("size"),
    "aten._unsafe_view.default": shaped("size"),
    "aten.reshape.default": shaped("shape"),
    "aten.view_as.default": view_as(),
    "aten.flatten.using_ints": flatten(),
    "aten.unflatten.int": st.sampled_from([[2, 3], [-1, 2], [6, 1]]).map(
        lambda sizes: Drawn({"self": tensor(4, 6, 2), "dim": -2, "sizes": sizes})
    ),
    "aten.squeeze.default": st.sampled_from([(1, 3, 1), (1, 1), (2, 3)]).map(
        lambda shape: Drawn({"self": tensor(*shape)})
    ),
    "aten.squeeze.dim": squeeze(several=False),
    "aten.squeeze.dims": squeeze(several=True),
    "aten.unsqueeze.default": unsqueeze(),
    "aten.permute.default": permute(),
    "aten.transpose.int": transpose(),
    "aten.t.default": matrix_transpose(),
    "aten.expand.default": expand(),
    "aten.expand_as.default": st.just(Drawn({"self": tensor(3, 1), "other": tensor(2, 3, 4)})),
    "aten.cat.default": concatenation(),
    "aten.slice.Tensor": range_of(),
    "aten.constant_pad_nd.default": padded(),
    "aten.pad.default": padded(mode="constant"),
    "aten.pixel_unshuffle.default": st.sampled_from([1, 2, 3]).map(
        lambda factor: Drawn({"self": tensor(2, 3, 6, 12), "downscale_factor": factor})
    ),
    "aten.full.default": filled(fill_value=st.sampled_from([2, 0.5, float("-inf")])).filter(
        lambda drawn: drawn.named["dtype"] != torch.int64 or drawn.named["fill_value"] == 2
    ),
    "aten.ones.default": filled(),
    "aten.zeros.default": filled(),
    "aten.empty.memory_format": st.just(Drawn({"size": [0, 3], "dtype": torch.float64})),
    "aten.empty_like.default": st.just(Drawn({"self": torch.zeros(0, 3, dtype=torch.float64)})),
    "aten.new_empty.default": st.just(Drawn({"self": tensor(2), "size": [0]})),
    "aten.zeros_like.default": st.just(Drawn({"self": tensor(2, 3)})),
    "aten.new_zeros.default": st.just(Drawn({"self": tensor(2), "size": [3, 4]})),
    "aten.full_like.default": st.just(Drawn({"self": tensor(2, 3), "fill_value": 2.5})),
    "aten.new_full.default": st.just(Drawn({"self": tensor(2), "size": [3], "fill_value": 2})),
    "aten.scalar_tensor.default": st.sampled_from([2.5, -1]).map(
        lambda number: Drawn({"s": number, "dtype": torch.float64})
    ),
    "aten.new_ones.default": st.sampled_from([torch.float64, None]).map(
        lambda dtype: Drawn({"self": tensor(2), "size": [3, 4], "dtype": dtype})
    ),
    "aten.ones_like.default": st.just(Drawn({"self": tensor(2, 3)})),
}  # fmt: skip

"""Elements by their indices, sorting, ranges and running sums."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from support.aten_calls.drawing import Drawn, Named, axis_of, elements, some
from support.aten_calls.statistics import extreme
from support.one_call import tensor


@st.composite
def taken(draw: st.DrawFn, name: str, axis: bool) -> Drawn:
    x = draw(elements()) if axis else tensor(5, 3)
    dim = axis_of(draw, x) if axis else 0
    rank = 1 if axis else draw(st.integers(0, 3))
    places = draw(index_below(x.shape[dim], (2,) * rank))
    if axis:
        return Drawn({"self": x, "dim": dim, "index": places})
    return Drawn({"weight": x, "indices": places, "padding_idx": draw(st.sampled_from([-1, 1]))})


@st.composite
def index_below(draw: st.DrawFn, size: int, shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(draw(st.integers(0, 9)))
    return torch.randint(0, size, shape, generator=generator)


@st.composite
def embedding_backward(draw: st.DrawFn) -> Drawn:
    places = draw(index_below(5, (2, 3)))
    return Drawn({
        "grad_output": tensor(2, 3, 4), "indices": places, "num_weights": 5,
        "padding_idx": draw(st.sampled_from([-1, 2])), "scale_grad_by_freq": False,
    })  # fmt: skip


@st.composite
def gathered(draw: st.DrawFn, source: str = "", add: bool = False) -> Drawn:
    x = draw(elements())
    axis = axis_of(draw, x)
    shape = list(x.shape)
    places = torch.argsort(tensor(*shape, seed=3), axis)  # each place once
    if add:
        places = draw(index_below(shape[axis], tuple(shape)))
    named: Named = {"self": x, "dim": axis, "index": places}
    if source:
        named[source] = 1.5 if source == "value" else tensor(*shape, seed=4)
    return Drawn(named)


@st.composite
def indexed(draw: st.DrawFn, put: bool = False) -> Drawn:
    x = tensor(3, 4, 5)
    pattern = draw(st.sampled_from([(1,), (0, 1), (1, 2), (0, 2), (2,)]))
    whole = (2, 3)
    indices: list[Any] = [None] * 3
    for axis in pattern:
        shape = whole if draw(some) else whole[1:]
        indices[axis] = draw(index_below(x.shape[axis], shape)) - (3 if axis == 1 else 0)
    indices = indices[: pattern[-1] + 1]
    if not put:
        return Drawn({"self": x, "indices": indices})
    complete = tuple(slice(None) if item is None else item for item in indices)
    values = tensor(*x[complete].shape, seed=1)
    # Where two indices name one place, only a sum has a defined result.
    return Drawn({"self": x, "indices": indices, "values": values, "accumulate": True})


@st.composite
def sorted_elements(draw: st.DrawFn, **further: Any) -> Drawn:
    x = draw(elements()).round()  # some are equal
    named = {"self": x, "dim": axis_of(draw, x), "descending": draw(some)}
    return Drawn(named | further, None if further else 1)


@st.composite
def flipped(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    axes = draw(st.lists(st.integers(0, x.dim() - 1), unique=True))
    return Drawn({"self": x, "dims": [a - x.dim() if draw(some) else a for a in axes]})


@st.composite
def steps(draw: st.DrawFn, *names: str) -> Drawn:
    whole = draw(some)
    given = {"start": 1 if whole else 0.5, "end": 7 if whole else 6.25, "step": draw(
        st.sampled_from([1, 2]) if whole else st.sampled_from([0.5, 1.25])
    )}  # fmt: skip
    named = {name: given[name] for name in names}
    return Drawn(named | {"dtype": torch.int64 if whole else torch.float64})


CALLS: dict[str, st.SearchStrategy[Drawn]] = {
    "aten.embedding.default": taken("weight", axis=False),
    "aten.index_select.default": taken("self", axis=True),
    "aten.embedding_dense_backward.default": embedding_backward(),
    "aten.gather.default": gathered(),
    "aten.scatter.src": gathered("src"),
    "aten.scatter.value": gathered("value"),
    "aten.scatter_add.default": gathered("src", add=True),
    "aten.index.Tensor": indexed(),
    "aten._unsafe_index.Tensor": indexed(),
    "aten.index_put.default": indexed(put=True),
    "aten._unsafe_index_put.default": indexed(put=True),
    "aten.arange.default": steps("end"),
    "aten.arange.start": steps("start", "end"),
    "aten.arange.start_step": steps("start", "end", "step"),
    "prims.iota.default": st.just(Drawn({
        "length": 5, "start": 2, "step": 3, "dtype": torch.int64, "device": torch.device("cpu"),
        "requires_grad": False,
    })),
    "aten.flip.default": flipped(),
    "aten.cumsum.default": elements().map(lambda x: Drawn({"self": x, "dim": -1})),
    "aten.sort.default": sorted_elements().map(lambda d: Drawn(d.named)),
    "aten.sort.stable": sorted_elements(stable=True),
    "aten.argmax.default": extreme(),
    "aten.argmin.default": extreme(),
}  # fmt: skip

"""Memory in the order in which it is read, and indices at which several views have strides."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from golow.levels.direct.cudnn.build.kernel_indices import divided
from golow.levels.direct.cudnn.build.layout_propagation import Chain, seen_first
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.steps.built_plan import Tensor as Placed
from golow.levels.direct.cudnn.steps.split_axis_views import Folded, folded
from golow.levels.direct.split_axes import Part
from golow.lower.analysis.ranges import View, shape_after
from golow.lower.ir.graph import Ref
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape
from support.examples import examples

X = Ref(name="x")
sizes_drawn = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=2, max_size=4)


def memory(shape: tuple[int, ...]) -> Placed:
    return Placed(0, shape, Layout("float32"))


def places(view: Folded) -> Tensor:
    """Where each element is stored, in the order of the view."""
    found = torch.zeros(1, dtype=torch.int64)
    for part in view.parts:
        found = (found.unsqueeze(1) + part.step * torch.arange(part.size)).flatten()
    return found


@st.composite
def views(draw: st.DrawFn, shape: tuple[int, ...]) -> View:
    """A permutation that leaves the last axis, or another shape of the same axes."""
    if draw(st.booleans()):
        order = (*draw(st.permutations(range(len(shape) - 1))), len(shape) - 1)
        return Permute(x=X, order=order)
    first = draw(st.integers(0, len(shape) - 1))
    last = draw(st.integers(first, len(shape) - 1))
    joined = (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])
    if draw(st.booleans()) and joined[0] % 2 == 0:
        joined = (2, joined[0] // 2, *joined[1:])
    return Reshape(x=X, shape=joined)


@pytest.mark.slow
@examples(300)
@given(st.data())
def test_the_last_of_several_views_is_in_order(data: st.DataObject) -> None:
    """Row-major, or with all rows in the order of parts that are given."""
    shape = tuple(data.draw(sizes_drawn))
    chain: list[View] = []
    last = shape
    for _ in range(data.draw(st.integers(0, 4))):
        chain.append(data.draw(views(last)))
        last = shape_after(chain[-1], last)
    wanted, rows = torch.arange(math.prod(shape)), None
    count, width = math.prod(last[:-1]), last[-1]
    if count % 2 == 0 and data.draw(st.booleans()):
        rows = (Part(2, 1), Part(count // 2, 2)) if count > 2 else (Part(2, 1),)
        turned = wanted.view(count // 2, 2, width).transpose(0, 1)
        wanted = turned.reshape(-1)
    found = seen_first(memory(shape), Chain(shape, tuple(chain), ""), rows)
    if found is None:
        return
    seen: Folded | None = found
    for view in chain:
        assert seen is not None
        turned = seen.permuted(view.order) if isinstance(view, Permute) else None
        seen = seen.reshaped(view.shape) if isinstance(view, Reshape) else turned
    assert seen is None or places(seen).equal(wanted)
    assert places(found).sort().values.equal(torch.arange(math.prod(shape)))


@pytest.mark.slow
@examples(300)
@given(st.data())
def test_views_have_strides_where_axes_are_divided(data: st.DataObject) -> None:
    """Each view is its own elements, in the same order."""
    shape = tuple(data.draw(sizes_drawn))
    found: dict[str, Folded] = {}
    for name in ("one", "other"):
        parts = [data.draw(st.sampled_from(divisions(size))) for size in shape]
        flat = [size for axis in parts for size in axis]
        order = data.draw(st.permutations(range(len(flat))))
        turned = folded(memory(tuple(flat[axis] for axis in order)))
        view = turned.permuted([order.index(axis) for axis in range(len(flat))]).reshaped(shape)
        assert view is not None
        found[name] = view
    indices = divided(shape, found)
    if indices is None:
        assert any(len(axis) > 1 for view in found.values() for axis in view.axes)
        return
    assert tuple(math.prod(axis) for axis in indices.division) == shape
    for name, view in found.items():
        lies = torch.arange(math.prod(shape)).as_strided(indices.sizes, indices.strides_of(name))
        assert lies.flatten().equal(places(view))


def divisions(size: int) -> list[tuple[int, ...]]:
    """Ways to write a size as a product of two."""
    return [(size,), *((n, size // n) for n in range(2, size) if size % n == 0)]


def test_axes_that_are_divided_otherwise_have_no_common_indices() -> None:
    def of(first: int, second: int) -> Folded:
        view = folded(memory((second, first))).permuted((1, 0)).reshaped((12,))
        assert view is not None
        return view

    assert divided((12,), {"one": of(3, 4), "other": of(4, 3)}) is None
    indices = divided((12,), {"one": of(3, 4), "other": of(6, 2)})
    assert indices is not None and indices.division == ((3, 2, 2),)

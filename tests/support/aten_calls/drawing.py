"""What calls are made of: tensors of few elements, axes and numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st
from torch import Tensor

from support.one_call import tensor

Named = dict[str, Any]


class Drawn(NamedTuple):
    """A call; results: how many of its values are read, all where it is None."""

    named: Named
    results: int | None = None


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
some = st.booleans()
numbers = st.sampled_from([0.5, 2, -1.25, 3])


@st.composite
def image(draw: st.DrawFn, low: int = 5, channels: int = 4) -> Tensor:
    size = (draw(st.integers(low, low + 3)), draw(st.integers(low, low + 3)))
    return tensor(draw(st.integers(1, 2)), channels, *size)


def pair(low: int, high: int) -> st.SearchStrategy[list[int]]:
    """A size for both axes, or one for each."""
    one = st.integers(low, high)
    return st.one_of(one.map(lambda n: [n]), st.tuples(one, one).map(list))


@st.composite
def elements(draw: st.DrawFn) -> Tensor:
    return tensor(*draw(shapes), seed=draw(st.integers(0, 9))) * 3


def axis_of(draw: st.DrawFn, x: Tensor) -> int:
    return draw(st.integers(-x.dim(), x.dim() - 1))


def of_one(name: str = "self", **further: st.SearchStrategy[Any]) -> st.SearchStrategy[Drawn]:
    """A call with one tensor of any shape."""
    fixed = st.fixed_dictionaries({name: elements(), **further})
    return fixed.map(Drawn)

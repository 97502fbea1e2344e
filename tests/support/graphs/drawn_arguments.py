"""What examples of operators are drawn from: tensors of few elements, axes, numbers, and the calls
and gradients that they make up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from golow.lower.ir.graph import Ref
from support.graphs.one_call import tensor

Named = dict[str, Any]


class Drawn(NamedTuple):
    """A call of ATen's: every argument by the name that its schema has for it. results: how many of
    its values are read, all where it is None."""

    named: Named
    results: int | None = None


class Differentiated(NamedTuple):
    """given: an operation's arguments. of: those of them that have gradients, by the order of the
    gradient's results. backward: the gradient's arguments, from the operation's results and the
    gradient of the first of them. wanted: which of the gradients are computed, all where it is
    empty."""

    given: Named
    of: tuple[str, ...]
    backward: Callable[[tuple[Tensor, ...], Tensor], Named]
    wanted: tuple[bool, ...] = ()


X = Ref(name="x")
IMAGE, PLAIN = tensor(2, 4, 6, 7), tensor(4, 6, 7)  # without a batch

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


def pairs(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    """A size for each of two axes."""
    return st.tuples(st.integers(low, high), st.integers(low, high))


@st.composite
def elements(draw: st.DrawFn) -> Tensor:
    return tensor(*draw(shapes), seed=draw(st.integers(0, 9))) * 3


def axis_of(draw: st.DrawFn, x: Tensor) -> int:
    return draw(st.integers(-x.dim(), x.dim() - 1))


@st.composite
def index_below(draw: st.DrawFn, size: int, shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(draw(st.integers(0, 9)))
    return torch.randint(0, size, shape, generator=generator)


# ---------------------------------------------------------------- calls


def of_one(name: str = "self", **further: st.SearchStrategy[Any]) -> st.SearchStrategy[Drawn]:
    """A call with one tensor of any shape."""
    fixed = st.fixed_dictionaries({name: elements(), **further})
    return fixed.map(Drawn)


@st.composite
def along_an_axis(draw: st.DrawFn) -> Drawn:
    """A call that reduces one axis."""
    x = draw(elements())
    return Drawn({"self": x, "dim": axis_of(draw, x), "keepdim": draw(some)})


@st.composite
def gradient(draw: st.DrawFn, value: str, **further: Any) -> Drawn:
    """A call of an activation's gradient; value: its name for what it is computed from."""
    x = draw(elements())
    given = {name: draw(item) for name, item in further.items()}
    return Drawn({"grad_output": tensor(*x.shape, seed=1), value: x} | given)


of_argument = partial(gradient, "self")
of_result = partial(gradient, "output")

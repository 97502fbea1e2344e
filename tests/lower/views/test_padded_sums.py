"""Sums of padded tensors, as gradients of slices arrive, and padding that is cut again. Numbers are
whole, so that any order of additions gives the same."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from golow.lower.analysis.ranges import Ranges, of_part, seen
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Pass
from golow.lower.ir.operator import Operator
from golow.lower.ir.verify import interpret, verify
from golow.lower.operators.activation import Activate
from golow.lower.operators.binary import Binary
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.expand import Expand
from golow.lower.operators.pad import Pad
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.slice import Slice
from golow.lower.views.cut_padding import cut_before_padding
from golow.lower.views.joined_views import join_as_read
from golow.lower.views.padded_sums import join_padded_parts
from support.examples import examples
from support.graphs.lowering import count, record, records
from support.graphs.written_graphs import RELU, Written, add, one, ref

Nodes = list[tuple[str, Operator]]


def whole_numbers(*shape: int) -> Tensor:
    return torch.randint(-8, 9, shape).double()


def after(written: Written, *passes: Pass) -> Graph:
    """The graph after the passes; it computes exactly the same."""
    graph = written.graph
    wanted = interpret(graph, written.given)
    for run in passes:
        graph = verify(run(graph))
        found = interpret(graph, written.given)
        assert found.keys() == wanted.keys()
        for name, tensor in wanted.items():
            assert torch.equal(found[name], tensor), (run.__name__, name)
    return graph


def pad(x: str, axis: int, shape: Sequence[int], start: int, stop: int, value: float = 0.0) -> Pad:
    """x as the range of an axis of that shape."""
    rank = len(shape)
    before = tuple(start if other == axis else 0 for other in range(rank))
    behind = tuple(shape[axis] - stop if other == axis else 0 for other in range(rank))
    return Pad(x=ref(x), before=before, after=behind, value=value)


# ---------------------------------------------------------------- any sums


class Term(NamedTuple):
    """A padded term: where it is along which axis. view: what the sum sees of it."""

    axis: int
    start: int
    stop: int
    view: str


class Sum(NamedTuple):
    shape: tuple[int, ...]
    terms: list[Term | None]  # None is a tensor as large as the whole
    order: list[tuple[int, int]]  # which two of the values so far are added next

    @property
    def padded(self) -> list[Term]:
        return [term for term in self.terms if term is not None]


@st.composite
def sums(draw: st.DrawFn) -> Sum:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=2, max_size=3)))
    one_axis = draw(st.booleans())
    first = draw(st.integers(0, len(shape) - 1))
    terms: list[Term | None] = []
    for _ in range(draw(st.integers(2, 6))):
        axis = first if one_axis else draw(st.integers(0, len(shape) - 1))
        start = draw(st.integers(0, shape[axis] - 1))
        stop = draw(st.integers(start + 1, shape[axis]))
        view = draw(st.sampled_from(["", "", "turned", "flat", "elements"]))
        terms.append(Term(axis, start, stop, view) if draw(st.integers(0, 4)) else None)
    order, left = [], len(terms)
    while left > 1:
        order.append((draw(st.integers(0, left - 1)), draw(st.integers(0, left - 2))))
        left -= 1
    return Sum(shape, terms, order)


def graph_of(drawn: Sum) -> Written:
    inputs: dict[str, Tensor] = {}
    nodes: Nodes = []
    names = [f"x{index}" for index in range(len(drawn.terms))]
    for index, (x, term) in enumerate(zip(names, drawn.terms, strict=True)):
        if term is None:
            inputs[x] = whole_numbers(*drawn.shape)
            continue
        padded, axis, start, stop, view = padding_of(term, drawn.shape, f"p{index}")
        part = (*padded[:axis], stop - start, *padded[axis + 1 :])
        inputs[x], names[index] = whole_numbers(*part), f"p{index}"
        nodes.append(one(names[index], pad(x, axis, padded, start, stop)))
        if view is not None:
            names[index] = f"v{index}"
            nodes.append(one(names[index], view))
    for index, (first, second) in enumerate(drawn.order):
        nodes.append(one(f"s{index}", add(names.pop(first), names.pop(second))))
        names.append(f"s{index}")
    return Written(inputs, nodes, names[0])


def padding_of(
    term: Term, shape: tuple[int, ...], name: str
) -> tuple[tuple[int, ...], int, int, int, Operator | None]:
    """The shape of what is padded, its axis, where x is there, and the view that follows."""
    axis, start, stop, view = term
    if view == "turned":
        order = tuple(reversed(range(len(shape))))
        return shape[::-1], order[axis], start, stop, Permute(x=ref(name), order=order)
    if view == "flat":
        each = math.prod(shape[axis + 1 :])
        flat = (math.prod(shape[:axis]), shape[axis] * each)
        return flat, 1, start * each, stop * each, Reshape(x=ref(name), shape=shape)
    if view == "elements":  # no range of an axis, unless by chance
        count = math.prod(shape)
        return (count,), 0, start, stop, Reshape(x=ref(name), shape=shape)
    return shape, axis, start, stop, None


@pytest.mark.slow
@examples(300)
@given(sums())
def test_a_sum_is_what_it_was(drawn: Sum) -> None:
    graph = after(graph_of(drawn), join_padded_parts)
    padded, left = drawn.padded, count(graph, Pad)
    places = {term[:3] for term in padded}
    narrow = all(stop - start < drawn.shape[axis] for axis, start, stop in places)
    if narrow and all(term.view != "elements" for term in padded):
        if are_apart(places) and len(padded) > 1:
            assert left == (len(places) == 1)
            assert count(graph, Concatenate) == (len(places) > 1)
        elif len(padded) == 2:
            assert left == 2, "these overlap, or lie along two axes"
    views = count(graph, Permute) + count(graph, Reshape)
    alike = any(term.view == "elements" for term in padded)  # two of them may be one view
    assert views <= sum(term.view != "" for term in padded) <= views + len(padded) * alike


def are_apart(places: set[tuple[int, int, int]]) -> bool:
    """True if they are along one axis and do not overlap."""
    ordered = sorted(places)
    pairs = itertools.pairwise(ordered)
    return all(one[0] == other[0] and one[2] <= other[1] for one, other in pairs)


def thirds(*shape: int) -> tuple[dict[str, Tensor], Nodes]:
    """Three padded thirds of the last axis."""
    axis, each = len(shape) - 1, shape[-1] // 3
    inputs = {f"x{i}": whole_numbers(*shape[:-1], each) for i in range(3)}
    nodes = [one(f"p{i}", pad(f"x{i}", axis, shape, i * each, (i + 1) * each)) for i in range(3)]
    return inputs, nodes


def test_parts_that_cover_the_whole_are_joined_in_their_order() -> None:
    inputs, nodes = thirds(2, 6)
    nodes += [one("s", add("p2", "p0")), one("t", add("s", "p1"))]
    graph = after(Written(inputs, nodes, "t"), join_padded_parts)
    assert [node.op for node in graph.nodes] == [Concatenate.op()]
    assert [part.name for part in record(graph, Concatenate).parts] == ["x0", "x1", "x2"]


def test_what_no_part_covers_is_zeros_that_are_repeated() -> None:
    inputs = {"x": whole_numbers(2, 2), "y": whole_numbers(2, 1)}
    nodes = [
        one("p", pad("x", 1, (2, 9), 1, 3)),
        one("q", pad("y", 1, (2, 9), 5, 6)),
        one("s", add("q", "p")),
    ]
    graph = after(Written(inputs, nodes, "s"), join_padded_parts)
    assert [layer.shape for layer in records(graph, Expand)] == [(2, 1), (2, 2), (2, 3)]
    assert len(record(graph, Concatenate).parts) == 5


def test_what_is_read_elsewhere_stays_padded() -> None:
    inputs, nodes = thirds(2, 6)
    nodes += [
        one("s", add("p0", "p1")),
        one("t", add("s", "p2")),
        one("read", Activate(x=ref("p2"), activation=RELU)),
    ]
    graph = after(Written(inputs, nodes, "t", "read"), join_padded_parts)
    assert count(graph, Pad) == 1
    assert count(graph, Binary) == 1
    nodes[-1] = one("read", Activate(x=ref("s"), activation=RELU))
    assert count(after(Written(inputs, nodes, "t", "read"), join_padded_parts), Pad) == 1


@pytest.mark.parametrize(
    "padding",
    [
        pad("y", 1, (2, 4), 2, 4, value=1.0),
        Pad(x=ref("y"), before=(0, 3), after=(0, -1), value=0.0),
        pad("y", 1, (2, 4), 1, 3),
    ],
)
def test_other_padding_stays(padding: Pad) -> None:
    """By another number, of what is cut as well, or over the other term."""
    inputs = {"x": whole_numbers(2, 2), "y": whole_numbers(2, 2)}
    nodes = [one("p", pad("x", 1, (2, 4), 0, 2)), one("q", padding), one("s", add("p", "q"))]
    assert count(after(Written(inputs, nodes, "s"), join_padded_parts), Pad) == 2


def test_quarters_of_an_image_are_joined_along_both_axes() -> None:
    inputs = {f"x{i}{j}": whole_numbers(2, 3) for i in range(2) for j in range(2)}
    nodes: Nodes = []
    for i in range(2):
        for j in range(2):
            nodes.append(one(f"a{i}{j}", pad(f"x{i}{j}", 1, (2, 6), 3 * j, 3 * j + 3)))
            nodes.append(one(f"p{i}{j}", pad(f"a{i}{j}", 0, (4, 6), 2 * i, 2 * i + 2)))
    nodes += [one("s", add("p00", "p11")), one("t", add("p01", "s")), one("u", add("t", "p10"))]
    graph = after(Written(inputs, nodes, "u"), join_padded_parts)
    assert [node.op for node in graph.nodes] == [Concatenate.op()] * 3


def test_interleaved_parts_are_joined_as_columns() -> None:
    """As the gradients of every second element and of the others arrive; a sum with another value
    follows."""
    inputs = {"x0": whole_numbers(2, 3, 1), "x1": whole_numbers(2, 3, 1), "y": whole_numbers(2, 6)}
    nodes: Nodes = []
    for i in range(2):
        nodes.append(one(f"p{i}", pad(f"x{i}", 2, (2, 3, 2), i, i + 1)))
        nodes.append(one(f"v{i}", Reshape(x=ref(f"p{i}"), shape=(2, 6))))
    nodes += [one("s", add("v1", "y")), one("t", add("s", "v0"))]
    graph = after(Written(inputs, nodes, "t"), join_padded_parts)
    assert [node.op for node in graph.nodes] == [Concatenate.op(), Reshape.op(), Binary.op()]


def test_parts_that_are_seen_in_different_orders_stay() -> None:
    inputs = {"x": whole_numbers(3, 1), "y": whole_numbers(1, 3)}
    nodes = [
        one("p", pad("x", 1, (3, 2), 0, 1)),
        one("v", Reshape(x=ref("p"), shape=(6,))),
        one("q", pad("y", 0, (2, 3), 1, 2)),
        one("w", Reshape(x=ref("q"), shape=(6,))),
        one("s", add("v", "w")),
    ]
    assert count(after(Written(inputs, nodes, "s"), join_padded_parts), Pad) == 2


@pytest.mark.slow
def test_a_long_sum_is_no_deep_recursion() -> None:
    """As the gradient of a sequence of which every step takes its own part."""
    steps = 1200
    inputs = {f"x{i}": whole_numbers(1, 2) for i in range(steps)}
    nodes = [one(f"p{i}", pad(f"x{i}", 0, (steps, 2), i, i + 1)) for i in range(steps)]
    nodes.append(one("s1", add("p0", "p1")))
    nodes += [one(f"s{i}", add(f"s{i - 1}", f"p{i}")) for i in range(2, steps)]
    graph = after(Written(inputs, nodes, f"s{steps - 1}"), join_padded_parts)
    assert [node.op for node in graph.nodes] == [Concatenate.op()]


# ---------------------------------------------------------------- cuts


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Written, bool]:
    """A padded tensor of which some ranges are taken, and whether it is one plain range alone."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    sides = [(draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in shape]
    before, behind = zip(*sides, strict=True)
    value = draw(st.sampled_from([0.0, 3.0, -math.inf]))
    nodes: Nodes = [one("p", Pad(x=ref("x"), before=before, after=behind, value=value))]
    whole = [n + a + b for n, (a, b) in zip(shape, sides, strict=True)]
    taken = draw(st.lists(st.sampled_from([1, 1, 1, 2, -1]), min_size=1, max_size=3))
    plain = True
    for index, step in enumerate(taken):
        axis = draw(st.integers(0, len(shape) - 1))
        start = draw(st.integers(0, whole[axis] - 1))
        stop = draw(st.integers(start, whole[axis]))
        plain = plain and step != 2 and start < stop
        cut: Operator = Slice(x=ref("p"), axis=axis, start=start, stop=stop, step=step)
        if step == -1:  # as the gradient of padding
            sizes = [(0, 0)] * len(shape)
            sizes[axis] = -start, stop - whole[axis]
            first, last = zip(*sizes, strict=True)
            cut = Pad(x=ref("p"), before=first, after=last, value=2.0)
        nodes.append(one(f"c{index}", cut))
    returned = [f"c{index}" for index in range(len(taken))]
    alone = plain and len(taken) == 1
    return Written({"x": whole_numbers(*shape)}, nodes, *returned), alone


@pytest.mark.slow
@examples(200)
@given(cuts())
def test_a_range_of_what_was_padded_is_what_it_was(drawn: tuple[Written, bool]) -> None:
    written, alone = drawn
    graph = after(written, cut_before_padding, eliminate_dead_code)
    order = [node.op for node in graph.nodes]
    if alone and Pad.op() in order:
        assert order.index(Pad.op()) == len(order) - 1, "it is cut after it was padded"


def test_padding_that_is_cut_again_goes() -> None:
    nodes = [
        one("p", Pad(x=ref("x"), before=(0, 0), after=(3, 2), value=0.0)),
        one("rows", Slice(x=ref("p"), axis=0, start=0, stop=4, step=1)),
        one("image", Slice(x=ref("rows"), axis=1, start=0, stop=5, step=1)),
        one("y", Activate(x=ref("image"), activation=RELU)),
    ]
    graph = after(Written({"x": whole_numbers(4, 5)}, nodes, "y"), cut_before_padding)
    assert [node.op for node in eliminate_dead_code(graph).nodes] == [Activate.op()]


def test_several_ranges_without_padding_are_taken_before_it() -> None:
    """Two with padding stay as they are, since each needs the padded tensor."""
    nodes = [
        one("p", Pad(x=ref("x"), before=(1,), after=(2,), value=0.0)),
        one("a", Slice(x=ref("p"), axis=0, start=1, stop=3, step=1)),
        one("b", Slice(x=ref("p"), axis=0, start=3, stop=5, step=1)),
        one("c", Slice(x=ref("p"), axis=0, start=4, stop=7, step=1)),
        one("d", Slice(x=ref("p"), axis=0, start=0, stop=2, step=1)),
    ]
    graph = after(Written({"x": whole_numbers(4)}, nodes, *"abcd"), cut_before_padding)
    assert [layer.x.name for layer in records(graph, Slice)] == ["x", "x", "p", "p"]


# ---------------------------------------------------------------- views of what was joined


@examples(300)
@given(st.data())
def test_ranges_are_followed_through_views(data: st.DataObject) -> None:
    """Views of the parts, joined, are the view of the parts that were joined."""
    axes = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
    axis = data.draw(st.integers(0, len(axes) - 1))
    cut = data.draw(st.integers(0, axes[axis]))
    whole = torch.arange(math.prod(axes)).view(axes)
    ranges = Ranges(tuple(axes), axis, (cut, axes[axis] - cut))
    view: Permute | Reshape
    if data.draw(st.booleans()):
        view = Permute(x=ref("x"), order=tuple(data.draw(st.permutations(range(len(axes))))))
        wanted = whole.permute(view.order)
    else:
        shape = data.draw(st.permutations([*axes, 1]))
        place = data.draw(st.integers(0, len(shape)))
        view = Reshape(x=ref("x"), shape=(*shape[:place], math.prod(shape[place:])))
        wanted = whole.reshape(view.shape)
    after_view = seen(view, ranges)
    if after_view is None:
        assert isinstance(view, Reshape)
        return
    found = []
    for index, part in enumerate(whole.split(ranges.sizes, axis)):
        of = of_part(view, after_view, index)
        found.append(part.permute(of.order) if isinstance(of, Permute) else part.reshape(of.shape))
    assert torch.cat(found, after_view.axis).equal(wanted)


def heads(*views: tuple[str, Operator]) -> Graph:
    """The gradients [4, 5, 6] of three heads, joined in front, and what follows."""
    inputs = {f"x{i}": whole_numbers(1, 4, 5, 6) for i in range(3)}
    joined = Concatenate(parts=tuple(ref(name) for name in inputs), axis=0)
    return after(Written(inputs, [one("y", joined), *views], views[-1][0]), join_as_read)


def test_parts_are_joined_as_the_whole_is_read() -> None:
    graph = heads(
        one("turned", Permute(x=ref("y"), order=(1, 2, 0, 3))),
        one("rows", Reshape(x=ref("turned"), shape=(20, 18))),
    )
    assert record(graph, Concatenate).axis == 1
    assert graph.nodes[-1].op == Concatenate.op()


@pytest.mark.parametrize(
    "views",
    [
        [one("rows", Reshape(x=ref("y"), shape=(12, 30)))],
        [one("turned", Permute(x=ref("y"), order=(1, 2, 0, 3)))],
        [
            one("turned", Permute(x=ref("y"), order=(1, 2, 3, 0))),  # the parts are between
            one("rows", Reshape(x=ref("turned"), shape=(20, 18))),
        ],
    ],
)
def test_a_whole_that_is_read_as_it_lies_stays(views: list[tuple[str, Operator]]) -> None:
    assert heads(*views).nodes[0].op == Concatenate.op()

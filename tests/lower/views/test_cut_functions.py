"""Functions of elements whose results are read in ranges are computed on ranges. Numbers are whole,
so that results are equal."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from golow.lower.ir.graph import Graph
from golow.lower.ir.operator import Operator
from golow.lower.ir.verify import interpret, verify
from golow.lower.operators.activation import Activate
from golow.lower.operators.binary import Binary
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.slice import Slice
from golow.lower.views.cut_functions import cut_before_functions
from support.graphs.lowering import records
from support.graphs.written_graphs import RELU, Written, one, ref

Nodes = list[tuple[str, Operator]]
PRODUCT = one("y", Binary(function="multiply", a=ref("x"), b=ref("table")))


def numbers(*shape: int) -> Tensor:
    return torch.randint(-8, 9, shape).double()


def cut(x: str, start: int, stop: int, axis: int = 2) -> Slice:
    return Slice(x=ref(x), axis=axis, start=start, stop=stop, step=1)


def turned(x: str, axis: int, size: int) -> Nodes:
    """The two halves of an axis, joined the other way round."""
    return [
        one("first", cut(x, 0, size // 2, axis)),
        one("second", cut(x, size // 2, size, axis)),
        one("negative", Binary(function="multiply", a=ref("second"), b=-1)),
        one("joined", Concatenate(parts=(ref("negative"), ref("first")), axis=axis)),
    ]


def after(nodes: Nodes, table: tuple[int, ...], *returned: str) -> Graph:
    written = Written({"x": numbers(2, 3, 6), "table": numbers(*table)}, nodes, *returned)
    graph = verify(cut_before_functions(written.graph))
    wanted, found = (interpret(g, written.given) for g in (written.graph, graph))
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())
    return graph


@pytest.mark.parametrize("table", [(2, 3, 6), (3, 6), (6,), (3, 1), (2, 1, 6)])
def test_halves_are_cut_before_a_product(table: tuple[int, ...]) -> None:
    graph = after([PRODUCT, *turned("y", 2, 6)], table, "joined")
    assert {layer.x.name for layer in records(graph, Slice)} <= {"x", "table"}


@pytest.mark.parametrize("table", [(2, 3, 6), (3, 6), (3, 1)])
def test_neighbours_are_cut_before_several_functions(table: tuple[int, ...]) -> None:
    nodes = [
        PRODUCT,
        one("z", Activate(x=ref("y"), activation=RELU)),
        one("pairs", Reshape(x=ref("z"), shape=(2, 3, 3, 2))),
        *turned("pairs", 3, 2),
    ]
    graph = after(nodes, table, "joined")
    views = {name for layer in records(graph, Reshape) for name in [layer.x.name]}
    assert views == {"x", "table"}


@pytest.mark.parametrize(
    "others",
    [
        [one("sum", Reduce(function="sum", x=ref("y"), axes=(2,), keep=False))],
        [one("sum", Reduce(function="sum", x=ref("first"), axes=(2,), keep=False))],
    ],
    ids=["the whole", "a range"],
)
def test_what_something_else_reads_stays(others: Nodes) -> None:
    graph = after([PRODUCT, *turned("y", 2, 6), *others], (6,), "joined", "sum")
    assert [layer.x.name for layer in records(graph, Slice)] == ["y", "y"]


def test_ranges_that_overlap_or_differ_in_size_stay() -> None:
    for start, stop in ((2, 6), (4, 6)):
        nodes = [
            PRODUCT,
            one("first", cut("y", 0, 4)),
            one("second", cut("y", start, stop)),
            one("joined", Concatenate(parts=(ref("first"), ref("second")), axis=2)),
        ]
        graph = after(nodes, (6,), "joined")
        assert [layer.x.name for layer in records(graph, Slice)] == ["y", "y"]

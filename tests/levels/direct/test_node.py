"""What a builder asks about the node that it is at: its values, who shares their memory and how
long; and what nodes note for one another."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import pytest
import torch

from golow.levels.direct.node import CurrentNode
from golow.lower.operators.activation import Activate
from golow.lower.operators.binary import Binary
from golow.lower.operators.reshape import Reshape
from support.graphs.written_graphs import RELU, Written, one, ref

# b looks at the memory of a; c reads a and its view; d comes after the last read of that memory.
GRAPH = Written(
    {"x": torch.randn(2, 3)},
    [
        one("a", Activate(x=ref("x"), activation=RELU)),
        one("b", Reshape(x=ref("a"), shape=(2, 3))),
        one("c", Binary(function="add", a=ref("a"), b=ref("b"))),
        one("d", Activate(x=ref("c"), activation=RELU)),
    ],
    "d",
).graph


class Factor(NamedTuple):
    """A note."""

    number: int


@pytest.fixture
def current() -> CurrentNode:
    return CurrentNode(GRAPH, "onednn")


def test_it_has_the_names_of_the_node_that_it_was_moved_to(current: CurrentNode) -> None:
    assert (current.name, current.position) == ("a", 0)
    current.move_to(2)
    assert (current.name, current.position, current.output().name) == ("c", 2, "c")
    assert current.value(ref("x")).shape == (2, 3)
    error = current.unsupported("too large")
    assert (error.level, error.node, error.module) == ("onednn", "c", "c")


def test_behind_the_last_node_no_layer_is_to_blame(current: CurrentNode) -> None:
    current.move_to(3)
    current.end()
    assert (current.node.module, current.node.phase, current.position) == ("", "update", 3)


def test_a_value_without_a_reader_has_a_name_for_its_memory() -> None:
    first = msgspec.structs.replace(GRAPH.nodes[0], outputs=(*GRAPH.nodes[0].outputs, None))
    graph = msgspec.structs.replace(GRAPH, nodes=(first, *GRAPH.nodes[1:]))
    current = CurrentNode(graph, "cudnn")
    assert [current.is_read(index) for index in (0, 1)] == [True, False]
    assert [current.output_name(index) for index in (0, 1, 2)] == ["a", "a.1", "a.2"]
    with pytest.raises(LookupError, match="value 1 of a has no reader"):
        current.output(1)


def test_views_are_in_their_values_group(current: CurrentNode) -> None:
    assert current.share_memory(ref("a"), ref("b"))
    assert not current.share_memory(ref("a"), ref("c"))
    current.move_to(2)
    assert not current.reads_once(ref("a"))
    current.move_to(3)
    assert current.reads_once(ref("c"))


def test_memory_is_free_after_the_last_read_of_any_view(current: CurrentNode) -> None:
    current.move_to(1)
    assert not current.is_read_last("a")
    current.move_to(2)
    assert current.is_read_last("a")
    assert current.is_read_last("b")


def test_what_lies_in_a_whole_is_in_use_as_long_as_the_whole(current: CurrentNode) -> None:
    current.move_to(2)
    current.put_into("a", "d")
    assert current.share_memory(ref("b"), ref("d"))
    assert not current.is_read_last("a")


def test_a_note_is_found_by_its_value_and_its_kind(current: CurrentNode) -> None:
    current.note("a", Factor(3))
    assert current.noted(ref("a"), Factor).number == 3
    assert current.found_note("a", str) is None
    with pytest.raises(LookupError, match="b was made without a Factor"):
        current.noted(ref("b"), Factor)

"""The verifier finds what cannot be right, and the passes keep what the graph computes."""

from __future__ import annotations

import keyword

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from golow.lower.capture.capture import capture_inference, capture_training
from golow.lower.ir.clean_up import CLEAN_UP, drop_identities, eliminate_dead_code
from golow.lower.ir.graph import Graph, Ref, Value
from golow.lower.ir.naming import Namer
from golow.lower.ir.pass_runner import apply, stages
from golow.lower.ir.verify import GraphError, verify
from support.models.drawn_networks import Small


@pytest.fixture(scope="module")
def inference() -> Graph:
    return capture_inference("small", Small(), (torch.randn(2, 3, 16, 16),)).graph


@pytest.fixture(scope="module")
def training() -> Graph:
    batch = (torch.randn(2, 3, 16, 16),), (torch.randint(0, 10, (2,)),)
    return capture_training("small", Small(), *batch, functional.cross_entropy).graph


def planted(graph: Graph, index: int, **changes: object) -> Graph:
    nodes = list(graph.nodes)
    nodes[index] = msgspec.structs.replace(nodes[index], **changes)
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def test_what_was_captured_verifies(inference: Graph, training: Graph) -> None:
    assert verify(inference) is inference
    assert verify(training) is training


def test_a_wrong_shape_is_found(inference: Graph) -> None:
    first = inference.nodes[0].outputs[0]
    assert first is not None
    wrong = Value(name=first.name, shape=(2, 8, 8, 9), dtype="float32")
    with pytest.raises(GraphError, match=r"is float32\[2, 8, 8, 9\]"):
        verify(planted(inference, 0, outputs=(wrong,)))


def test_a_wrong_dtype_is_found(inference: Graph) -> None:
    first = inference.nodes[0].outputs[0]
    assert first is not None
    wrong = Value(name=first.name, shape=first.shape, dtype="float64")
    with pytest.raises(GraphError, match="float64"):
        verify(planted(inference, 0, outputs=(wrong,)))


def test_an_undefined_value_is_found(inference: Graph) -> None:
    arguments = (Ref(name="nobody"), *inference.nodes[0].arguments[1:])
    with pytest.raises(GraphError, match="nobody is read before it is defined"):
        verify(planted(inference, 0, arguments=arguments))


def test_a_value_defined_twice_is_found(inference: Graph) -> None:
    twice = msgspec.structs.replace(
        inference, nodes=(inference.nodes[0], inference.nodes[0], *inference.nodes[1:])
    )
    with pytest.raises(GraphError, match="defined twice"):
        verify(twice)


def test_a_missing_output_is_found(inference: Graph) -> None:
    outputs = (msgspec.structs.replace(inference.outputs[0], name="nobody"),)
    with pytest.raises(GraphError, match="there is no nobody"):
        verify(msgspec.structs.replace(inference, outputs=outputs))


def test_a_pass_that_breaks_the_graph_is_found(inference: Graph) -> None:
    def lose_a_node(graph: Graph) -> Graph:
        return msgspec.structs.replace(graph, nodes=graph.nodes[1:])

    with pytest.raises(GraphError, match="before it is defined"):
        apply(inference, (lose_a_node,))


def test_identities_go_and_the_rest_stays(inference: Graph, training: Graph) -> None:
    for graph in (inference, training):
        ops = [node.op for node in drop_identities(graph).nodes]
        assert "aten.detach.default" not in ops
        assert "aten.dropout.default" not in ops
    assert "aten.native_dropout.default" in [n.op for n in drop_identities(training).nodes]


def test_dead_code_goes(training: Graph) -> None:
    loss = tuple(item for item in training.outputs if item.kind == "loss")
    alone = eliminate_dead_code(msgspec.structs.replace(training, outputs=loss))
    assert 0 < len(alone.nodes) < len(training.nodes)
    assert all(node.phase == "forward" for node in alone.nodes)
    verify(alone)


def test_history_has_every_stage(inference: Graph) -> None:
    seen = [graph.history[-1].name for graph in stages(inference, CLEAN_UP)]
    assert seen == ["capture", "drop_identities", "eliminate_dead_code"]


def test_a_model_without_layers_names_its_values_after_operations() -> None:
    namer = Namer({""})  # it is its own only layer
    assert namer.node("aten.lgamma.default", "", "forward") == "lgamma"
    assert namer.node("aten._softmax.default", "", "forward") == "softmax"
    assert Namer({"fc"}).node("aten.linear.default", "fc", "forward") == "fc"


@given(st.lists(st.text(max_size=12), max_size=20))
def test_names_are_identifiers_and_differ(wanted: list[str]) -> None:
    namer = Namer(set())
    names = [namer.free(text) for text in wanted]
    assert len(set(names)) == len(names)
    for name in names:
        assert name.isidentifier()
        assert name.isascii()
        assert not keyword.iskeyword(name)
        assert "__" not in name

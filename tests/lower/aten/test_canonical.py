"""From ATen's calls to the vocabulary: every spelling means what ATen computes, what is not in the
vocabulary is left alone, and a layer is the same operator in both modes."""

from __future__ import annotations

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from golow.lower.aten.canonical import canonicalise
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Node, decode_graph, encode_graph
from golow.lower.ir.operator import PREFIX, record_of, references, spellings
from golow.lower.ir.verify import interpret, operation, verify
from golow.lower.operators.activation import ActivateBackward
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.linear import Linear
from golow.lower.to_vocabulary import CANONICAL
from support.examples import examples
from support.graphs.drawn_arguments import IMAGE
from support.graphs.lowering import Case, count, ops, records
from support.graphs.one_call import Call, arranged
from support.graphs.operator_examples import CALLS, LAYERS, LEFT

# ---------------------------------------------------------------- every spelling


@pytest.mark.parametrize("op", sorted(spellings()))
@examples(15)
@given(data=st.data())
def test_a_spelling_means_what_aten_computes(op: str, data: st.DataObject) -> None:
    drawn = data.draw(CALLS[op])
    position, keywords = arranged(data.draw, operation(op), drawn.named)
    made = Call(op, position, keywords, drawn.results)
    graph = verify(canonicalise(verify(made.graph)))
    node = graph.nodes[-1]
    assert node.op.startswith(PREFIX), (position, keywords)
    assert node.arguments == ()
    arguments = record_of(node)
    assert arguments is not None
    assert set(node.keywords) == set(type(arguments).__struct_fields__)
    back = decode_graph(encode_graph(graph))
    assert record_of(back.nodes[-1]) == arguments
    torch.manual_seed(0)
    found = interpret(back, made.given)
    torch.testing.assert_close(found, made.wanted, rtol=1e-12, atol=1e-12, equal_nan=True)


SPECIAL = [-0.0, 0.0, -1.0, 1.0, 6.0, 7.0, float("nan"), float("inf"), -float("inf")]


@pytest.mark.parametrize(
    ("op", "numbers"),
    [
        ("aten.threshold_backward.default", {"threshold": 0}),
        ("aten.hardtanh_backward.default", {"min_val": 0.0, "max_val": 6.0}),
        ("aten.hardtanh_backward.default", {"min_val": -1.0, "max_val": 1.0}),
    ],
)
def test_gradients_at_their_bounds_and_of_no_number(op: str, numbers: dict[str, float]) -> None:
    values = torch.tensor(SPECIAL)
    gradient, x = torch.meshgrid(values, values, indexing="ij")
    made = Call(op, [gradient, x], numbers)
    graph = verify(canonicalise(made.graph))
    assert count(graph, ActivateBackward) == 1
    found = interpret(graph, made.given)
    torch.testing.assert_close(found, made.wanted, rtol=0, atol=0, equal_nan=True)


# ---------------------------------------------------------------- what is left alone

OUTSIDE = {"softplus": ("aten.softplus.default", IMAGE)}  # no operator has a spelling of it


@pytest.mark.parametrize("name", LEFT | OUTSIDE)
def test_what_is_not_in_the_vocabulary_stays(name: str) -> None:
    op, *position = (LEFT | OUTSIDE)[name]
    keywords = position.pop() if isinstance(position[-1], dict) else {}
    made = Call(op, position, keywords)
    before, after = made.graph.nodes[-1], canonicalise(verify(made.graph)).nodes[-1]
    assert after == before
    assert after.op == op


def test_one_call_that_stays_keeps_its_neighbours_from_nothing() -> None:
    module = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Softplus(), nn.Conv2d(4, 4, 3))
    graph = Case(module, IMAGE.float()).after(*CLEAN_UP, canonicalise)
    assert ops(graph) == [Convolution.op(), "aten.softplus.default", Convolution.op()]


# ---------------------------------------------------------------- one layer, one operator


@pytest.mark.parametrize("layer", [item for _, item in LAYERS], ids=[name for name, _ in LAYERS])
def test_a_layer_is_the_same_operator_in_both_modes(layer: nn.Module) -> None:
    """Up to the names of its values, and where the largest of a window was."""
    found = []
    for mode in ("infer", "train"):
        module = nn.Sequential(nn.Conv2d(3, 4, 1), layer, nn.Flatten(), nn.LazyLinear(5))
        module(torch.zeros(2, 3, 6, 7))
        graph = Case(module, torch.randn(2, 3, 6, 7), mode=mode).after(*CLEAN_UP, *CANONICAL)
        nodes = [n for n in graph.nodes if (n.module, n.phase) == ("1", "forward")]
        assert all(node.op.startswith(PREFIX) for node in nodes), ops(graph)
        found.append([without_names(node) for node in nodes])
    assert found[0] == found[1]
    assert found[0]


def without_names(node: Node) -> tuple[object, ...]:
    arguments = record_of(node)
    assert arguments is not None
    given = set(references(arguments)) | {"indices", "parts"}
    fields = msgspec.structs.asdict(arguments).items()
    return node.op, {name: item for name, item in fields if name not in given}


def test_a_linear_layer_is_one_operator_in_both_modes() -> None:
    for mode in ("infer", "train"):
        module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5))
        graph = Case(module, torch.randn(3, 6), mode=mode).after(*CLEAN_UP, *CANONICAL)
        assert [layer.bias is not None for layer in records(graph, Linear)] == [True, True]
        assert not any(op.startswith("aten.") for op in ops(graph))

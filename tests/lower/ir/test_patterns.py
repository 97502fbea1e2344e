"""The matcher of declared patterns, on graphs written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.lower.fuse import epilogue_fusion
from golow.lower.ir.graph import Graph, Node
from golow.lower.ir.operator import written
from golow.lower.ir.patterns import Fusion, Match, Rule, fuse, node
from golow.lower.ir.rewriting import result
from golow.lower.ir.verify import verify
from golow.lower.operators.activation import Activate
from golow.lower.operators.batch_norm import BatchNormBackward
from golow.lower.operators.binary import Binary
from golow.lower.operators.linear import Linear
from golow.lower.operators.matrix_product import MatrixProduct
from support.examples import examples
from support.graphs.written_graphs import (
    RELU,
    TANH,
    Written,
    activate,
    add,
    numbers,
    one,
    ref,
    value,
)

SQUARE = {"x": numbers(3, 3), "y": numbers(3, 3) + 1}
PRODUCT = MatrixProduct(a=ref("x"), b=ref("y"))

# ---------------------------------------------------------------- the matcher


def noted(seen: list[Match], *fusions: Fusion) -> Callable[[Match], Sequence[Fusion]]:
    """Notes what matched and puts these in its place."""

    def replace(match: Match) -> Sequence[Fusion]:
        seen.append(match)
        return fusions

    return replace


def matches(graph: Graph, *patterns: Any) -> list[dict[str, str]]:
    """The nodes of every match, by their names in the pattern."""
    seen: list[Match] = []
    fuse(graph, Rule(patterns, noted(seen)))
    return [{name: found.node.name for name, found in match.found.items()} for match in seen]


def test_a_field_is_a_value_or_made_by_a_node() -> None:
    graph = Written(SQUARE, [one("p", PRODUCT), one("s", add("p", "x")), one("t", add("x", "p"))],
                    "s", "t").graph  # fmt: skip
    product = node("product", MatrixProduct)
    assert matches(graph, node("sum", Binary, a=product)) == [{"sum": "s", "product": "p"}]
    assert matches(graph, node("sum", Binary, b=product)) == [{"sum": "t", "product": "p"}]
    assert matches(graph, node("sum", Binary, a=ref("x"))) == [{"sum": "t"}]
    assert len(matches(graph, node("sum", Binary, function="add"))) == 2
    assert matches(graph, node("sum", Binary, function="multiply")) == []
    assert matches(graph, node("sum", Activate, Binary, a=product, function="add"))
    assert matches(graph, node("sum", Activate, x=product)) == []


def test_an_input_is_made_by_no_node() -> None:
    graph = Written(SQUARE, [one("s", add("x", "y"))], "s").graph
    assert matches(graph, node("sum", Binary, a=node("maker", Binary))) == []


def test_a_further_result_is_not_what_a_pattern_looks_for() -> None:
    """The gradient of a norm gives four values; a pattern's node is the maker of the first."""
    given = {"x": numbers(4, 3), "g": numbers(4, 3) + 1, "m": numbers(3), "d": numbers(3).abs() + 1}
    backward = BatchNormBackward(
        gradient=ref("g"), x=ref("x"), scale=None, mean=ref("m"), inverse_deviation=ref("d"),
        epsilon=1e-5, wanted=(True, True, True, False),
    )  # fmt: skip
    nodes = [one("b", backward), one("s", activate("b_1")), one("t", activate("b"))]
    graph = Written(given, nodes, "s", "t").graph
    found = matches(graph, node("a", Activate, x=node("norm", BatchNormBackward)))
    assert found == [{"a": "t", "norm": "b"}]


def test_commuting() -> None:
    nodes = [one("p", PRODUCT), one("s", add("x", "p")), one("t", add("p", "x"))]
    graph = Written(SQUARE, nodes, "s", "t").graph
    seen: list[Match] = []
    product = node("product", MatrixProduct)
    fuse(graph, Rule([node("sum", Binary, a=product, commutes=True)], noted(seen)))
    assert [(m["sum"].node.name, m["sum"].swapped) for m in seen] == [("s", True), ("t", False)]
    # What a rule reads is in the pattern's order.
    assert all(m.arguments("sum", Binary).a == ref("p") for m in seen)
    assert all(m.arguments("sum", Binary).b == ref("x") for m in seen)


def test_a_number_does_not_commute() -> None:
    graph = Written(SQUARE, [one("s", add("x", 1.5))], "s").graph
    assert matches(graph, node("sum", Binary, b=1.5, commutes=True)) == [{"sum": "s"}]
    assert matches(graph, node("sum", Binary, a=1.5, commutes=True)) == []


def test_alone() -> None:
    alone = node("sum", Binary, a=node("product", MatrixProduct, alone=True))
    once = [one("p", PRODUCT), one("s", add("p", "x"))]
    assert matches(Written(SQUARE, once, "s").graph, alone) == [{"sum": "s", "product": "p"}]
    read_twice = [*once, one("t", activate("p"))]
    assert matches(Written(SQUARE, read_twice, "s", "t").graph, alone) == []
    assert matches(Written(SQUARE, once, "s", "p").graph, alone) == []  # returned
    # One node that reads it twice is one reader.
    itself = [one("p", PRODUCT), one("s", add("p", "p"))]
    assert matches(Written(SQUARE, itself, "s").graph, alone) == [{"sum": "s", "product": "p"}]
    # The outermost node may be alone too: nobody reads what is returned.
    assert matches(Written(SQUARE, once, "s").graph, node("s", Binary, alone=True)) == []
    assert matches(Written(SQUARE, read_twice, "t").graph, node("s", Binary, alone=True)) == []


def test_where_sees_shapes_and_arguments() -> None:
    given = {"x": numbers(3, 3), "y": numbers(3)}
    graph = Written(given, [one("s", add("x", "y")), one("t", add("x", "x"))], "s", "t").graph

    def alike(found: Any) -> bool:
        return bool(found.shape(found.arguments.a) == found.shape(found.arguments.b))

    assert matches(graph, node("sum", Binary, where=alike)) == [{"sum": "t"}]


def test_the_nearest_match_counts() -> None:
    """Of two products that a sum adds, the later; in either order."""
    other = MatrixProduct(a=ref("y"), b=ref("x"))
    pattern = node("sum", Binary, a=node("product", MatrixProduct), commutes=True)
    for sum_of in (add("p", "q"), add("q", "p")):
        graph = Written(SQUARE, [one("p", PRODUCT), one("q", other), one("s", sum_of)], "s").graph
        assert matches(graph, pattern) == [{"sum": "s", "product": "q"}]


def with_activation(match: Match) -> list[Fusion]:
    operator = msgspec.structs.replace(match["sum"].arguments, activation=RELU)
    outputs = match["activation"].node.outputs
    return [Fusion(operator, "sum", ("activation",), "activation", outputs)]


SUM_TAKES = Rule(
    [node("activation", Activate, activation=RELU, x=node("sum", Binary, alone=True))],
    with_activation,
)


def test_what_a_match_took_is_gone_and_the_rest_stays() -> None:
    nodes = [one("s", add("x", "y")), one("p", PRODUCT), one("a", activate("s")),
             one("z", add("a", "p"))]  # fmt: skip
    graph = Written(SQUARE, nodes, "z").after(SUM_TAKES)
    assert [each.name for each in graph.nodes] == ["p", "s", "z"]  # where the activation was
    fused = graph.nodes[1]
    assert result(fused) == "a"
    assert (fused.module, fused.absorbed) == ("s", ("a",))


def test_a_node_takes_part_in_one_match() -> None:
    """Two activations of one sum: the pattern lets each have it, and the first does."""
    taken = Rule(
        [node("activation", Activate, x=node("sum", Binary))],
        lambda match: [Fusion(activate("x"), "sum", ("activation",), "activation",
                              match["activation"].node.outputs)],
    )  # fmt: skip
    nodes = [one("s", add("x", "y")), one("a", activate("s")), one("b", activate("s"))]
    graph = fuse(Written(SQUARE, nodes, "a", "b").graph, taken)
    assert [(each.name, result(each)) for each in graph.nodes] == [("s", "a"), ("b", "b")]


def test_a_rule_that_declines_changes_nothing() -> None:
    nodes = [one("s", add("x", "y")), one("a", activate("s"))]
    graph = Written(SQUARE, nodes, "a").graph
    assert fuse(graph, Rule(SUM_TAKES.patterns, lambda match: [])) == graph


def test_new_nodes_stand_in_front() -> None:
    made = written(Node(name="n", op="", arguments=()), add("x", "x"),
                   outputs=(value("n", SQUARE["x"]),))  # fmt: skip
    rule = Rule(
        [node("sum", Binary)],
        lambda match: [Fusion(add("n", "y"), "sum", (), "sum", match["sum"].node.outputs, (made,))],
    )
    graph = verify(fuse(Written(SQUARE, [one("s", add("x", "y"))], "s").graph, rule))
    assert [each.name for each in graph.nodes] == ["n", "s"]


def test_a_match_asked_for_another_kind_says_so() -> None:
    seen: list[Match] = []
    fuse(Written(SQUARE, [one("s", add("x", "y"))], "s").graph,
         Rule([node("sum", Binary)], noted(seen)))  # fmt: skip
    with pytest.raises(LookupError, match="sum is a Binary"):
        seen[0].arguments("sum", Activate)


@st.composite
def tangles(draw: st.DrawFn) -> Written:
    """Sums, products, linear layers and activations that read whatever was made before."""
    names, nodes = ["x", "y"], []
    for index in range(draw(st.integers(1, 8))):
        a, b = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        operators = [
            add(a, b),
            add(a, 0.5),
            activate(a, draw(st.sampled_from([RELU, TANH]))),
            Linear(x=ref(a), weight=ref("y")),
            Binary(function="multiply", a=ref(a), b=ref(b)),
        ]
        nodes.append((f"v{index}", draw(st.sampled_from(operators))))
        names.append(f"v{index}")
    returned = draw(st.lists(st.sampled_from(names[2:]), unique=True, max_size=2))
    return Written(SQUARE, nodes, *dict.fromkeys([*returned, names[-1]]))


@examples(60)
@given(tangles())
def test_no_order_of_rules_changes_what_a_tangle_computes(tangle: Written) -> None:
    rules = [epilogue_fusion.RESIDUAL, epilogue_fusion.ACTIVATION]
    for order in (rules, rules[::-1], [*rules, *rules]):
        graph = tangle.after(*order)
        assert len(graph.nodes) <= len(tangle.graph.nodes)

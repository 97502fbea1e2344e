"""Every declared rule: on graphs on which it fires, and on some on which it must not."""

from __future__ import annotations

import pytest

from golow.lower.ir.graph import Graph
from golow.lower.ir.operator import record_of
from support.graphs.rule_examples import FILES, RULES, Declared, examples_of, missing
from support.graphs.written_graphs import Fires, Stays


def of_kind(kind: type) -> list[object]:
    """Every rule with each of its examples of that kind."""
    return [
        pytest.param(rule, example, id=f"{rule}-{number}")
        for rule in RULES
        for number, example in enumerate(examples_of(rule))
        if isinstance(example, kind)
    ]


@pytest.mark.parametrize(("rule", "example"), of_kind(Fires))
def test_a_rule_fires(rule: Declared, example: Fires) -> None:
    graph = example.graph.after(rule.rule)
    assert operators(graph) == list(example.becomes)
    assert graph.outputs == example.graph.graph.outputs


@pytest.mark.parametrize(("rule", "example"), of_kind(Stays))
def test_a_rule_leaves_what_is_not_its_own(rule: Declared, example: Stays) -> None:
    assert example.graph.after(rule.rule) == example.graph.graph


def operators(graph: Graph) -> list[object]:
    return [record_of(node) for node in graph.nodes]


# ---------------------------------------------------------------- every rule has them


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_rule_has_examples(rule: Declared) -> None:
    assert missing(rule, examples_of(rule)) == [], "see docs/extend/adding_an_operator.md"


def test_examples_belong_to_a_rule() -> None:
    named = {(*place, name) for place, examples in FILES.items() for name in examples}
    assert named == {(rule.folder, rule.file, rule.name) for rule in RULES}


def test_what_a_rule_lacks_is_named() -> None:
    [rule] = [rule for rule in RULES if str(rule) == "pooling.GLOBAL_POOLING"]
    place = (
        "tests/lower/fuse/examples/pooling.py: EXAMPLES['GLOBAL_POOLING'] lacks a graph on which"
    )
    fires, *_, stays = examples_of(rule)
    assert missing(rule, [fires, stays]) == []
    assert missing(rule, [fires]) == [f"{place} the rule must not fire: Stays(...)"]
    assert missing(rule, []) == [
        f"{place} the rule fires: Fires(...)",
        f"{place} the rule must not fire: Stays(...)",
    ]


def test_a_rule_that_did_nothing_would_be_seen() -> None:
    for param in of_kind(Fires):
        rule, example = param.values  # type: ignore[attr-defined]
        assert operators(example.graph.graph) != list(example.becomes), rule

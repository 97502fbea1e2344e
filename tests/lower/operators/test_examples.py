"""Every operator has its examples, in the file of its name; what is missing is said."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from golow.lower.ir.operator import activation_functions
from golow.lower.operators.softmax import Softmax
from support.graphs.activation_examples import ACTIVATIONS
from support.graphs.drawn_arguments import X
from support.graphs.operator_examples import EXAMPLES, PLACE, definitions, missing

DEFINED = definitions()


@pytest.mark.parametrize("path", DEFINED)
def test_an_operator_has_its_examples(path: str) -> None:
    assert missing(path, DEFINED[path], EXAMPLES) == [], "see docs/extend/adding_an_operator.md"


def test_examples_belong_to_an_operator() -> None:
    assert set(EXAMPLES) <= set(DEFINED)
    assert {item.name for item in ACTIVATIONS} == set(activation_functions())


# ---------------------------------------------------------------- planted


def said(path: str, **examples: Any) -> list[str]:
    """What is missing where the operator's file of examples holds these."""
    planted: dict[str, Any] = {path: SimpleNamespace(**examples)}
    start = f"{PLACE}/{path}.py: "
    found = missing(path, DEFINED[path], planted)
    assert all(line.startswith(start) for line in found)
    return [line.removeprefix(start) for line in found]


def test_a_missing_file_is_named() -> None:
    nothing: dict[str, ModuleType] = {}
    assert missing("softmax", DEFINED["softmax"], nothing) == [
        "tests/lower/operators/examples/softmax.py is missing: "
        "the examples of lower/operators/softmax.py"
    ]


def test_what_a_file_lacks_is_named() -> None:
    whole = vars(EXAMPLES["softmax"])
    calls = {op: whole["CALLS"][op] for op in whole["CALLS"] if op != "aten._softmax.default"}
    one = Softmax(x=X, axis=0, log=False)
    assert said("softmax", RECORDS=[one], CALLS=calls, GRADIENTS=whole["GRADIENTS"]) == [
        "RECORDS lacks one SoftmaxBackward(...)",
        "CALLS lacks aten._softmax.default",
    ]
    more = {**whole["CALLS"], "aten.other.default": None}
    assert said("softmax", RECORDS=whole["RECORDS"], CALLS=more) == [
        "CALLS has aten.other.default, which the operator's file does not spell",
        "GRADIENTS lacks SoftmaxBackward",
    ]


def test_an_activation_without_numbers_or_a_layer_is_named() -> None:
    whole = vars(EXAMPLES["activations/leaky_relu"])
    for numbers in ({}, {"NUMBERS": ((),)}):
        assert said("activations/leaky_relu", CALLS=whole["CALLS"], **numbers) == [
            "LAYERS lacks a layer with the activation",
            "NUMBERS lacks numbers to try the activation with",
        ]

"""Arguments and names of a graph as C++: right, or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.levels.libtorch.arguments import NotEmitted, argument_text, string_text
from golow.levels.libtorch.emit import emit_program, without_comments
from golow.levels.libtorch.operators import find_operator
from golow.lower.ir.graph import GraphInput, GraphOutput, Node, Ref, Symbol
from support.graphs.emitted_graphs import graph_of, one_node, value


@pytest.mark.parametrize(
    ("argument", "kind", "size", "text"),
    [
        (Ref(name="x"), "Tensor", None, "x"),
        (None, "Tensor?", None, "none"),
        (None, "Tensor", None, "Tensor()"),
        (1, "Tensor", None, "number(1)"),
        (0.5, "Tensor", None, "number(0.5)"),
        ((Ref(name="x"), Ref(name="x")), "Tensor[]", None, "at::TensorList({x, x})"),
        (
            (None, Ref(name="x")),
            "Tensor?[]",
            None,
            "c10::List<std::optional<Tensor>>({none, x})",
        ),
        ((1, 2), "int[]", 2, "{1, 2}"),
        (3, "SymInt[]", 2, "{3, 3}"),
        ((), "int[]", None, "{}"),
        ((), "int[]?", None, "at::IntArrayRef()"),
        ((), "SymInt[]?", None, "c10::SymIntArrayRef()"),
        (None, "int[]?", 1, "none"),
        ((2.0, 2.0), "float[]?", None, "at::ArrayRef<double>({2.0, 2.0})"),
        ((True, False, True), "bool[]", 3, "{true, false, true}"),
        (-(2**63), "int", None, "(-9223372036854775807 - 1)"),
        (2**63 - 1, "SymInt", None, "9223372036854775807"),
        (1e-05, "float", None, "1e-05"),
        (
            Symbol(kind="float", name="-inf"),
            "float",
            None,
            "-std::numeric_limits<double>::infinity()",
        ),
        (
            Symbol(kind="float", name="nan"),
            "number",
            None,
            "std::numeric_limits<double>::quiet_NaN()",
        ),
        (True, "number", None, "true"),
        (2, "number?", None, "2"),
        (True, "bool?", None, "true"),
        (Symbol(kind="dtype", name="bfloat16"), "ScalarType?", None, "at::kBFloat16"),
        (6, "ScalarType", None, "static_cast<at::ScalarType>(6)"),
        (Symbol(kind="layout", name="strided"), "Layout?", None, "at::kStrided"),
        (Symbol(kind="device", name="cpu"), "Device?", None, "at::kCPU"),
        (
            Symbol(kind="memory_format", name="channels_last"),
            "MemoryFormat?",
            None,
            "at::MemoryFormat::ChannelsLast",
        ),
        ('say "no"\n', "str", None, '"say \\042no\\042\\012"'),
        (None, "Generator?", None, "none"),
    ],
)
def test_arguments(argument: object, kind: str, size: int | None, text: str) -> None:
    assert argument_text(argument, kind, size, {"x": "x"}) == text


@pytest.mark.parametrize(
    ("argument", "kind"),
    [
        (0, "Generator"),
        (2.5, "int"),
        ("a", "float"),
        (Symbol(kind="dtype", name="q"), "ScalarType"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(argument: object, kind: str) -> None:
    with pytest.raises(NotEmitted):
        argument_text(argument, kind, None, {})


def test_names_that_cpp_has_taken_are_changed() -> None:
    node = Node(
        name="r",
        op="aten.add.Tensor",
        arguments=(Ref(name="double"), Ref(name="result")),
        outputs=(value("concept", 4),),
    )
    inputs = [
        GraphInput(value=value("double", 4), kind="parameter", target="double"),
        GraphInput(value=value("result", 4), kind="buffer", target="result"),
    ]
    leaving = [GraphOutput(name="concept", kind="output", target="0")]
    program = emit_program(graph_of([node], leaving, *inputs))
    assert "auto concept_v1 = ops::add_Tensor::call(double_v1, result_v1, 1);" in program
    assert 'Parameter double_v1{*this, "double"};' in program


def test_no_layer_name_breaks_out_of_its_comment() -> None:
    graph = one_node("aten.relu.default", Ref(name="x"), module="evil\\\nint x = system();\u2028")
    program = emit_program(graph)
    assert "\n    // evil??int x = system();?\n" in program


@given(st.text())
def test_comments_are_stripped_and_strings_are_not(text: str) -> None:
    literal = string_text(text)
    assert literal.isascii()
    assert without_comments(f"call({literal});  // {literal}\n") == f"call({literal});\n"


def test_operators_are_found_with_their_headers() -> None:
    functional_form = find_operator("aten._native_batch_norm_legit_functional.default")
    assert functional_form.header == "ATen/ops/_native_batch_norm_legit_ops.h"
    assert find_operator("aten.relu_.default").header == "ATen/ops/relu_ops.h"
    assert find_operator("aten.mean.dim").symbol == "mean_dim"

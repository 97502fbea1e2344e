"""What is kept of an operation is what PyTorch gives for it, and for no other."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from golow.lower.ir import verify
from golow.lower.ir.graph import Argument, Graph, GraphInput, GraphOutput, Node, Ref, Value
from golow.lower.ir.verify import GraphError
from support.examples import examples


def graph(
    op: str, result: Value, *arguments: Argument, shape: tuple[int, ...] = (2, 3), dtype: str
) -> Graph:
    """The operation with x and these arguments."""
    x = Value(name="x", shape=shape, dtype=dtype)
    node = Node(name="n", op=op, arguments=(Ref(name="x"), *arguments), outputs=(result,))
    return Graph(
        name="g",
        mode="infer",
        inputs=(GraphInput(value=x, kind="input", target="0"),),
        nodes=(node,),
        outputs=(GraphOutput(name="y", kind="output", target="0"),),
    )


@given(st.lists(st.integers(0, 4), max_size=5), st.sampled_from(["float32", "bool", "int64"]))
@examples(50)
def test_an_input_lies_as_torch_makes_it(shape: list[int], dtype: str) -> None:
    value = Value(name="x", shape=tuple(shape), dtype=dtype)
    made = torch.empty(shape, dtype=getattr(torch, dtype))
    assert verify._contiguous(value) == verify._form(made)


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(0, 2),
    st.sampled_from([(), (0,), (1, 0), (0, 1)]),
)
@examples(50)
def test_a_tensor_made_of_a_form_has_it(shape: list[int], start: int, order: tuple[int]) -> None:
    """Views, too: part of a storage, in any order."""
    view = torch.empty([size + 2 for size in shape])[start:]
    view = view.permute(order) if len(order) == view.dim() else view.expand(2, *view.shape)
    assert verify._form(verify._made(verify._form(view))) == verify._form(view)


def test_numbers_that_are_equal_are_told_apart() -> None:
    """1 == 1.0 == True, and an integer plus a float is another type."""
    integers = Value(name="y", shape=(2, 3), dtype="int64")
    floats = Value(name="y", shape=(2, 3), dtype="float32")
    for number, right, wrong in ((1, integers, floats), (1.0, floats, integers)):
        for _ in range(2):  # the second time from what is kept
            verify.verify(graph("aten.add.Scalar", right, number, dtype="int64"))
            with pytest.raises(GraphError, match=r"y is .* in the graph"):
                verify.verify(graph("aten.add.Scalar", wrong, number, dtype="int64"))


def test_the_same_operation_on_another_shape_is_another() -> None:
    for shape, right in (((2, 3), (3, 2)), ((4, 5), (5, 4))):
        result = Value(name="y", shape=right, dtype="float32")
        verify.verify(graph("aten.t.default", result, shape=shape, dtype="float32"))
    with pytest.raises(GraphError, match="y is float32"):
        verify.verify(graph("aten.t.default", result, shape=(2, 3), dtype="float32"))


def test_what_gives_no_tensor_is_found() -> None:
    result = Value(name="y", shape=(), dtype="int64")
    with pytest.raises(GraphError, match="gives no tensor for y"):
        verify.verify(graph("aten.sym_size.int", result, 0, dtype="float32"))


def test_few_operations_are_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[str] = []
    kept = verify._run_without_elements
    monkeypatch.setattr(verify, "_EFFECTS", {})
    monkeypatch.setattr(
        verify, "_run_without_elements", lambda *given: run.append(given[0].op) or kept(*given)
    )
    result = Value(name="y", shape=(2, 3), dtype="float32")
    for _ in range(3):
        verify.verify(graph("aten.relu.default", result, dtype="float32"))
    assert run == ["aten.relu.default"]

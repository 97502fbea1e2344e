"""A plan is compared with PyTorch on its first calls: rounding passes, anything else does not."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, fx

from golow.compiled.dynamo.agreement import difference
from support.examples import examples


def graph_of(layers: int) -> fx.GraphModule:
    """``tanh(x w)`` some times, and which of the results is the largest in its row."""
    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    for _ in range(layers):
        product = graph.call_function(torch.ops.aten.mm.default, (x, w))
        x = graph.call_function(torch.ops.aten.tanh.default, (product,))
    largest = graph.call_function(torch.ops.aten.argmax.default, (x, 1))
    graph.output((x, largest))
    return fx.GraphModule(torch.nn.Module(), graph)


GRAPH = graph_of(3)


def inputs(seed: int = 0) -> tuple[Tensor, Tensor]:
    drawn = torch.Generator().manual_seed(seed)
    return torch.randn(8, 16, generator=drawn), torch.randn(16, 16, generator=drawn) / 3


def outputs(seed: int = 0) -> list[Tensor]:
    return list(GRAPH(*inputs(seed)))


@examples(40)
@given(seed=st.integers(0, 999), size=st.floats(0.0, 0.9))
def test_rounding_agrees(seed: int, size: float) -> None:
    y, largest = outputs(seed)
    signs = torch.randint(0, 2, y.shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    moved = y * (1 + size * 2**-23 * signs)
    assert difference([moved, largest], [y, largest], GRAPH, inputs(seed)) == ""


@examples(40)
@given(place=st.integers(0, 127), factor=st.floats(1.01, 2.0))
def test_one_wrong_element_is_seen(place: int, factor: float) -> None:
    y, largest = outputs()
    wrong = y.clone()
    wrong.view(-1)[place] = wrong.view(-1)[place] * factor + 1e-3
    assert difference([wrong, largest], [y, largest], GRAPH, inputs()).startswith("output 0 is off")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda y, i: (y, i + 1), "output 1 has 8 other elements"),
        (lambda y, i: (y.t().contiguous().t(), i), "output 0 has another form"),
        (lambda y, i: (y.double(), i), "output 0 has another form"),
        (lambda y, i: (y[:4], i), "output 0 has another form"),
        (lambda y, i: (y.where(y != y[0, 0], torch.nan), i), "output 0 has other infinities"),
        (lambda y, i: (y.where(y != y[0, 0], torch.inf), i), "output 0 has other infinities"),
        (lambda y, i: (torch.zeros_like(y), i), "output 0 is off by"),
    ],
)
def test_what_is_no_rounding_is_named(change: object, why: str) -> None:
    y, largest = outputs()
    assert difference(change(y, largest), [y, largest], GRAPH, inputs()).startswith(why)  # type: ignore[operator]


def in_tf32(x: Tensor) -> Tensor:
    """Rounded to the ten bits of TF32."""
    return ((x.view(torch.int32) + 2**12) & -(2**13)).view(torch.float32)


@examples(40)
@given(seed=st.integers(0, 999), factor=st.floats(1.05, 2.0))
def test_products_in_tf32_agree_where_the_plan_may_compute_in_it(seed: int, factor: float) -> None:
    x, w = inputs(seed)
    y, largest = outputs(seed)
    product = (torch.ops.aten.mm.default,)
    for _ in range(3):
        x = (in_tf32(x) @ in_tf32(w)).tanh()
    assert difference([x, largest], [y, largest], GRAPH, inputs(seed), product) == ""
    for other in ((), (torch.ops.aten.convolution.default,)):
        why = difference([x, largest], [y, largest], GRAPH, inputs(seed), other)
        assert why.startswith("output 0 is off")
    wrong = x.clone()
    wrong[3] *= factor
    assert difference([wrong, largest], [y, largest], GRAPH, inputs(seed), product) != ""


def test_sums_that_cancel_may_differ_as_far_as_rounding_moves_them() -> None:
    """A gradient that is 0 but for rounding, such as that of a bias before batch norm."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    mean = graph.call_function(torch.ops.aten.mean.dim, (x, [0], True))
    centred = graph.call_function(torch.ops.aten.sub.Tensor, (x, mean))
    graph.output((graph.call_function(torch.ops.aten.sum.dim_IntList, (centred, [0])),))
    noise = fx.GraphModule(torch.nn.Module(), graph)
    x = torch.randn(4096, 8, generator=torch.Generator().manual_seed(0))
    (wanted,) = noise(x)
    (other,) = noise(x.flip(0))  # the same sums in another order
    assert not torch.allclose(wanted, other, atol=0, rtol=1e-2)
    assert difference([other], [wanted], noise, [x]) == ""
    assert difference([other + 1e-2], [wanted], noise, [x]) != ""

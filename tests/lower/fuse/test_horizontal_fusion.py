"""Linear layers of one input that are computed as one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.weight_arithmetic import computed
from golow.lower.fuse.epilogue_fission import release_activations
from golow.lower.fuse.epilogue_fusion import fuse_activation, fuse_residual
from golow.lower.fuse.horizontal_fusion import join_linear_layers
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Ref
from golow.lower.operators.joined_weight import JoinedWeight
from golow.lower.operators.linear import Linear
from golow.lower.operators.slice import Slice
from golow.lower.to_vocabulary import CANONICAL
from support.examples import examples
from support.graphs.lowering import Case, count, records


class Attention(nn.Module):
    """Query, key and value of these widths; ``bias``: which of them have one."""

    def __init__(self, widths: tuple[int, ...], bias: tuple[bool, ...]) -> None:
        super().__init__()
        pairs = zip(widths, bias, strict=True)
        self.layers = nn.ModuleList(nn.Linear(16, width, bias=has) for width, has in pairs)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (layer(x) for layer in self.layers)
        heads = [t.unflatten(-1, (-1, 8)).transpose(1, 2) for t in (query, key, value)]
        repeats = heads[0].shape[1] // heads[1].shape[1]
        key, value = (t.repeat_interleave(repeats, 1) for t in heads[1:])
        return (heads[0] @ key.mT).softmax(-1) @ value


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(16, 24, bias=False), nn.Linear(16, 24, bias=False)
        self.down = nn.Linear(24, 16, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Rows(nn.Module):
    """What reads one of the layers needs its rows whole."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(16, 8), nn.Linear(16, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.a(x)) + self.b(x)


def joined(module: nn.Module) -> Graph:
    """The graph after the pass; it means what it meant before."""
    fusions = (fuse_residual, fuse_activation, release_activations, join_linear_layers)
    return Case(module, torch.randn(2, 5, 16)).after(*CANONICAL, *fusions, eliminate_dead_code)


@examples(12)
@given(bias=st.tuples(st.booleans(), st.booleans(), st.booleans()), grouped=st.booleans())
def test_query_key_and_value_are_one_product(bias: tuple[bool, ...], grouped: bool) -> None:
    widths = (32, 16, 16) if grouped else (16, 16, 16)
    graph = joined(Attention(widths, bias))
    alike = max(sum(bias), 3 - sum(bias))  # layers that have a bias, or have none
    assert count(graph, Linear) == 1 + 3 - alike
    assert count(graph, Slice) == alike
    assert count(graph, JoinedWeight) == (2 if sum(bias) == alike else 1)


def test_gate_and_input_are_one_product() -> None:
    graph = joined(Gated())
    first, second = records(graph, Linear)
    assert count(graph, JoinedWeight) == 1 and first.weight != second.weight
    assert graph.nodes[-1].module == "down"


@pytest.mark.parametrize("module", [Rows(), nn.Sequential(Gated().gate)])
def test_what_stays(module: nn.Module) -> None:
    assert count(joined(module), JoinedWeight) == 0


def test_weights_are_joined_in_their_order() -> None:
    parts = {name: torch.randn(2, 3).numpy() for name in "ab"}
    operator = JoinedWeight(parts=(Ref(name="b"), Ref(name="a")))
    meant = JoinedWeight.meaning([torch.from_numpy(parts[name]) for name in "ba"])
    assert (computed(operator, parts.__getitem__) == meant.numpy()).all()

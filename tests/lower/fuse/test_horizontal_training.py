"""Linear layers of one input that are computed as one in training, at `cudnn`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.lower.analysis.joined_parameters import joined_parameters
from golow.lower.fuse.gradient_buckets import average_gradients
from golow.lower.fuse.horizontal_training import join_trained_layers
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.lower.ir.rewriting import Links
from golow.lower.ir.verify import verify
from golow.lower.operators.all_reduce import AllReduce
from golow.lower.operators.joined_weight import JoinedWeight
from golow.lower.operators.linear import Linear
from golow.lower.operators.matrix_product import MatrixProduct
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound
from support.direct.libraries_on_cpu import KnownEngines, LibrariesMachine
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, count, records

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

WIDTH = 32


class Block(nn.Module):
    """Attention without scale and mask, and a gated layer, as Llama has them. biased: query, key
    and value have biases."""

    def __init__(self, biased: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.query, self.key, self.value = (
            nn.Linear(WIDTH, width, bias=biased) for width in (32, 16, 16)
        )
        self.out = nn.Linear(WIDTH, WIDTH)
        self.gate, self.up = (nn.Linear(WIDTH, 48, bias=False) for _ in range(2))
        self.down = nn.Linear(48, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](x)
        query, key, value = (
            layer(y).unflatten(-1, (-1, 16)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        key, value = (item.repeat_interleave(2, 1) for item in (key, value))
        attended = (query @ key.mT).softmax(-1) @ value
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


def network(biased: bool) -> nn.Module:
    """A layer, a block and a head."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, WIDTH), Block(biased), nn.Flatten(), nn.Linear(4 * WIDTH, 8))


@pytest.fixture(scope="module", params=[True, False], ids=["biases", "no biases"])
def case(request: pytest.FixtureRequest) -> Case:
    return Case(network(request.param), torch.randn(2, 4, 8), mode="train")


@pytest.fixture(scope="module")
def graph(case: Case) -> Graph:
    """As `cudnn` gets it. Every pass leaves its numbers as they were."""
    return case.after(*case.direct_passes()["cudnn"])


def test_layers_of_one_input_are_one_in_every_direction(graph: Graph) -> None:
    links, joined = Links(graph), joined_parameters(graph)
    weights = [item for item in joined if item.targets[0].endswith("weight")]
    assert [{name.split(".")[1] for name in item.targets} for item in weights] == [
        {"query", "key", "value"},
        {"gate", "up"},
    ]
    assert all(item.gradient for item in joined)
    for item in weights:
        readers = [links.nodes[position].op for position in links.readers[item.weight]]
        assert readers == [Linear.op(), MatrixProduct.op()]  # the result, the input's gradient
        assert links.nodes[links.maker[item.gradient]].op == MatrixProduct.op()


def test_no_step_joins_weights_or_their_gradients(graph: Graph) -> None:
    made = build_plan(graph, cast("Engines", AskedEngines()), TYPES["bf16"], 4)
    assert_sound(made)
    operations = [step.operation for step in made.plan.steps]
    assert "joined_weight" not in operations
    copied = [s for s in made.plan.steps if s.operation == "copy" and s.phase == "update"]
    assert not copied
    for group in ("query", "key", "value"), ("gate", "up"):
        masters = [made.inputs["parameter", f"1.{name}.weight"] for name in group]
        masters.sort(key=lambda tensor: tensor.offset)
        ends = [tensor.offset + 4 * tensor.elements for tensor in masters]
        assert [tensor.offset for tensor in masters] == [0, *ends[:-1]]
        assert len({tensor.buffer for tensor in masters}) == 1


def test_ranks_average_joined_gradients_in_one_bucket(case: Case) -> None:
    passes = case.direct_passes()["cudnn"]
    graph = apply(case.graph, passes[: passes.index(join_trained_layers) + 1])
    averaged = verify(average_gradients(graph, 2, 1, 1))
    buckets = [len(r.gradients) for r in records(averaged, AllReduce)]
    assert max(buckets) == (6 if count(graph, JoinedWeight) == 3 else 3)
    assert joined_parameters(averaged) == joined_parameters(graph)


@pytest.mark.slow
@pytest.mark.parametrize("case", [True], indirect=True, ids=["biases"])
def test_every_value_is_where_the_plan_says(graph: Graph) -> None:
    tensors = {item.value.name: _small(drawn(item.value)) for item in graph.inputs}
    follow(graph, cast("Engines", KnownEngines()), tensors, LibrariesMachine, limit=1e-3)


def _small(tensor: Tensor) -> Tensor:
    """Numbers of which products of products stay small."""
    return tensor / 4 if tensor.is_floating_point() else tensor


class Others(nn.Module):
    """Layers that stay: of another input each, read by more than the layer, with rows that
    others need whole, of widths that vectors do not divide."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        width = 12 if kind == "narrow" else 16
        self.kind = kind
        self.one, self.two = nn.Linear(16, width), nn.Linear(16, width)
        self.last = nn.Linear(width, 8)

    def forward(self, x: Tensor) -> Tensor:
        other = x.tanh() if self.kind == "inputs" else x
        one, two = self.one(x), self.two(other)
        if self.kind == "shared":
            return self.last(one * two) + (self.one.weight * 2).sum()
        if self.kind == "rows":
            return self.last(one) + self.last(two)
        return self.last(one * two)


@pytest.mark.parametrize("kind", ["inputs", "shared", "rows", "narrow"])
def test_what_stays(kind: str) -> None:
    case = Case(Others(kind), torch.randn(4, 16), mode="train")
    passes = case.direct_passes()["cudnn"]
    assert count(apply(case.graph, passes), JoinedWeight) == 0

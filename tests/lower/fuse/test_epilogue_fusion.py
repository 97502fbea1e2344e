"""Fusion: what goes into a convolution or linear layer, what does not, and that no pass changes
what the graph computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.lower.fuse.epilogue_fusion import fuse_activation, fuse_padding, fuse_residual
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Activation, Graph, Ref
from golow.lower.operators.activation import Activate
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.linear import Linear
from golow.lower.operators.pad import Pad
from golow.lower.to_vocabulary import CANONICAL
from support.graphs.activation_examples import ACTIVATION_LAYERS
from support.graphs.lowering import Case, count, only, ops, record, records

FUSED = (*CANONICAL, fuse_padding, fuse_residual, fuse_activation, eliminate_dead_code)
CONVOLUTION, LINEAR, BINARY = Convolution.op(), Linear.op(), Binary.op()
RELU = Activation(name="relu")


class Two(nn.Module):
    """Two convolutions of one shape, a linear layer, and a function of x, them and nothing else."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 1)
        self.act = nn.ReLU()
        self.function = function

    def forward(self, x: Tensor) -> object:
        return self.function(self, x)


def fused(function: Callable[..., object]) -> Graph:
    return Case(Two(function), torch.randn(2, 4, 5, 6)).after(*FUSED)


def additions(graph: Graph) -> list[str]:
    """The sums that are left: the vocabulary's, and those that only ATen can say."""
    sums = [BINARY for add in records(graph, Binary) if add.function == "add"]
    return sums + [op for op in ops(graph) if op == "aten.add.Tensor"]


def convolved(layer: nn.Module, channels: int = 4) -> Graph:
    return Case(layer, torch.randn(2, channels, 7, 8)).after(*FUSED)


# ---------------------------------------------------------------- naming


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 6, 3),
        nn.Conv2d(4, 6, (3, 1), stride=(2, 1), padding=(1, 0), dilation=(1, 2), bias=False),
        nn.Conv2d(4, 4, 3, groups=4, padding="valid"),
        nn.Conv2d(4, 6, 3, padding="same"),
        nn.Conv2d(4, 6, (2, 4), padding="same", dilation=(3, 1)),
    ],
)
def test_convolutions_get_their_name(layer: nn.Module) -> None:
    assert ops(convolved(layer)) == [CONVOLUTION]


def test_same_padding_that_cannot_be_halved_goes_behind() -> None:
    graph = convolved(nn.Conv2d(4, 6, (2, 4), padding="same", dilation=(3, 1)))
    assert record(graph, Convolution).padding == (1, 1, 2, 2)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.ConvTranspose2d(4, 6, 3, stride=2), (2, 4, 5, 5)),
        (nn.Conv1d(4, 6, 3, padding=1), (2, 4, 9)),
        (nn.Conv3d(4, 6, 3, padding=1), (2, 4, 4, 4, 4)),
    ],
)
def test_other_convolutions_become_those_of_images(
    layer: nn.Module, shape: tuple[int, ...]
) -> None:
    for mode in ("infer", "train"):
        module = nn.Sequential(layer, nn.Flatten(), nn.LazyLinear(5))
        module(torch.zeros(shape))
        graph = Case(module, torch.randn(shape), mode=mode).after(*FUSED)
        assert not [op for op in ops(graph) if op.startswith("aten.")]
        assert count(graph, LINEAR) == 1


def test_an_image_without_a_batch_gets_one() -> None:
    graph = fused(lambda m, x: m.first(x[0]))
    assert count(graph, CONVOLUTION) == 1


def test_a_linear_layer_of_the_training_step_gets_its_name() -> None:
    module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5))
    graph = Case(module, torch.randn(3, 6), mode="train").after(*FUSED)
    assert count(graph, LINEAR) == 2
    assert not count(graph, "aten.addmm.default")


def test_a_sum_with_a_matrix_is_no_linear_layer() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(5, 6))

        def forward(self, x: Tensor) -> Tensor:
            return torch.addmm(x[:, :5], x, self.weight.t())

    assert not count(Case(Sum(), torch.randn(3, 6)).after(*FUSED), LINEAR)


# ---------------------------------------------------------------- padding


@pytest.mark.parametrize(
    ("pad", "sides"),
    [
        (nn.ZeroPad2d(1), (2, 2, 2, 2)),
        (nn.ZeroPad2d((0, 1, 2, 3)), (3, 1, 4, 2)),  # left, right, top, bottom
        (nn.ConstantPad2d((2, 0, 0, 0), 0.0), (1, 3, 1, 1)),
        (nn.ConstantPad1d((1, 2), 0), (1, 2, 1, 3)),  # of the columns alone
        (nn.ConstantPad3d((0, 0, 1, 0, 0, 0), 0.0), (2, 1, 1, 1)),  # names the channels, adds none
    ],
)
def test_zero_padding_goes_into_the_convolution(pad: nn.Module, sides: tuple[int, ...]) -> None:
    graph = convolved(nn.Sequential(pad, nn.Conv2d(4, 6, 3, padding=1)))
    assert ops(graph) == [CONVOLUTION]
    assert record(graph, Convolution).padding == sides
    assert (graph.nodes[0].module, graph.nodes[0].absorbed) == ("1", ("0",))


@pytest.mark.parametrize(
    ("pad", "channels"),
    [
        (nn.ConstantPad2d(1, 0.5), 4),
        (nn.ZeroPad2d(-1), 4),
        (nn.ZeroPad2d((1, -1, 1, 1)), 4),
        (nn.ConstantPad3d((0, 0, 0, 0, 1, 0), 0.0), 3),  # of the channels too
    ],
)
def test_other_padding_stays(pad: nn.Module, channels: int) -> None:
    graph = convolved(nn.Sequential(pad, nn.Conv2d(4, 6, 3, padding=1)), channels)
    assert len(graph.nodes) == 2
    assert record(graph, Convolution).padding == (1, 1, 1, 1)
    assert graph.nodes[1].absorbed == ()


def test_padding_that_another_reads_stays_for_it() -> None:
    graph = fused(lambda m, x: (m.second(p := functional.pad(x, (1, 1, 1, 1))), p))
    assert record(graph, Convolution).padding == (1, 1, 1, 1)
    assert only(graph, CONVOLUTION).absorbed == ()
    assert len(graph.nodes) == 2


def test_padding_that_the_backward_pass_reads_stays_for_it() -> None:
    module = nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(4, 6, 3), nn.Flatten(),
                           nn.Linear(6 * 6 * 7, 5))  # fmt: skip
    graph = Case(module, torch.randn(2, 4, 7, 8), mode="train").after(*FUSED)
    assert record(graph, Convolution).padding == (0, 0, 1, 1)
    assert count(graph, Pad) == 1


# ---------------------------------------------------------------- residuals


@pytest.mark.parametrize(
    "function",
    [lambda m, x: m.first(x) + x, lambda m, x: x + m.first(x)],
    ids=["conv(x) + x", "x + conv(x)"],
)
def test_a_residual_goes_into_the_convolution(function: Callable[..., object]) -> None:
    graph = fused(function)
    assert ops(graph) == [CONVOLUTION]
    assert record(graph, Convolution).residual is not None
    assert graph.nodes[0].module == "first"


def test_of_two_convolutions_the_later_takes_the_other() -> None:
    for function in (
        lambda m, x: m.first(x) + m.second(x),
        lambda m, x: (lambda a, b: b + a)(m.first(x), m.second(x)),
    ):
        graph = fused(function)
        assert ops(graph) == [CONVOLUTION, CONVOLUTION]
        assert [node.module for node in graph.nodes] == ["first", "second"]
        assert records(graph, Convolution)[1].residual == Ref(name=graph.nodes[0].outputs[0].name)


def test_a_chain_of_additions() -> None:
    """One addition fits; the second reads the first's result."""
    graph = fused(lambda m, x: m.first(x) + x + m.second(x))
    assert ops(graph) == [CONVOLUTION, CONVOLUTION]
    graph = fused(lambda m, x: (m.first(x) + x) + x)
    assert ops(graph) == [CONVOLUTION, BINARY]


def test_a_linear_layer_takes_a_residual_and_an_activation() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            return functional.gelu(x + self.fc(x))

    for shape in ((3, 6), (3, 4, 6)):
        graph = Case(Block(), torch.randn(shape)).after(*FUSED)
        assert ops(graph) == [LINEAR]
        assert record(graph, Linear).activation == Activation(name="gelu")


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda m, x: (y := m.first(x)) + x + y, 2),  # the layer's result is read twice
        (lambda m, x: (y := m.first(x), y + x), 1),  # ... or returned
        (lambda m, x: (y := m.first(x)) + y, 1),
        (lambda m, x: m.first(x) + x[:, :1], 1),  # of another shape
        (lambda m, x: m.first(x) + x[:1], 1),
        (lambda m, x: m.first(x[:, :, :1]) + x, 1),  # the layer's own result is spread
        (lambda m, x: m.first(x) + x.double(), 0),  # of another dtype: no arithmetic of floats
        (lambda m, x: m.first(x) + 1.0, 1),
        (lambda m, x: m.act(m.first(x)) + x, 1),  # the activation comes first
    ],
)
def test_these_additions_stay(function: Callable[..., object], left: int) -> None:
    graph = fused(function)
    assert len(additions(graph)) == left
    assert record(graph, Convolution).residual is None


# ---------------------------------------------------------------- activations


@pytest.mark.parametrize(
    ("layer", "wanted"), ACTIVATION_LAYERS.items(), ids=map(str, ACTIVATION_LAYERS)
)
def test_activations_go_into_what_makes_their_argument(
    layer: nn.Module, wanted: Activation
) -> None:
    graph = convolved(nn.Sequential(nn.Conv2d(4, 6, 3), layer))
    assert ops(graph) == [CONVOLUTION]
    assert record(graph, Convolution).activation == wanted
    assert (graph.nodes[0].module, graph.nodes[0].absorbed) == ("0", ("1",))
    graph = Case(nn.Sequential(nn.Linear(4, 6), layer), torch.randn(2, 4)).after(*FUSED)
    assert ops(graph) == [LINEAR]
    assert record(graph, Linear).activation == wanted


@pytest.mark.parametrize(
    "layer", [nn.SELU(), nn.CELU(0.5), nn.LeakyReLU(-0.1), nn.PReLU(), nn.Softplus(), nn.Mish()]
)
def test_other_activations_stay(layer: nn.Module) -> None:
    graph = convolved(nn.Sequential(nn.Conv2d(4, 6, 3), layer))
    assert record(graph, Convolution).activation is None
    assert len(graph.nodes) >= 2


def test_a_bound_at_infinity_stays() -> None:
    for mode in ("infer", "train"):
        module = nn.Sequential(nn.Linear(4, 6), nn.Hardtanh(float("-inf"), 0.5))
        graph = Case(module, torch.randn(2, 4), mode=mode).lowered()
        assert not count(graph, Activate)
        assert "golow.pointwise" in ops(graph)


def test_the_second_activation_stays() -> None:
    graph = fused(lambda m, x: torch.tanh(torch.relu(m.first(x))))
    assert ops(graph) == [CONVOLUTION, Activate.op()]
    assert record(graph, Convolution).activation == RELU
    assert record(graph, Activate).activation == Activation(name="tanh")


def test_an_activation_of_a_value_that_is_read_twice_stays() -> None:
    graph = fused(lambda m, x: (lambda y: torch.relu(y) + torch.tanh(y))(m.first(x)))
    assert record(graph, Convolution).activation is None
    graph = fused(lambda m, x: (y := m.first(x), torch.relu(y)))
    assert record(graph, Convolution).activation is None


def test_residual_and_activation_together() -> None:
    graph = fused(lambda m, x: m.act(m.second(torch.tanh(m.first(x))) + x))
    first, second = records(graph, Convolution)
    assert (first.activation, second.activation) == (Activation(name="tanh"), RELU)
    assert second.residual is not None
    assert "act" in graph.nodes[1].absorbed


def test_an_addition_takes_an_activation() -> None:
    graph = fused(lambda m, x: m.act(x + torch.exp(x)))
    assert ops(graph) == ["golow.pointwise", BINARY]
    assert record(graph, Binary).activation == RELU


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: torch.relu(x + x[:, :1]),
        lambda m, x: torch.relu(x + 0.5),
    ],
    ids=["spread", "number"],
)
def test_these_additions_take_no_activation(function: Callable[..., object]) -> None:
    graph = fused(function)
    assert len(additions(graph)) == 1
    assert all(add.activation is None for add in records(graph, Binary))
    assert record(graph, Activate).activation == RELU

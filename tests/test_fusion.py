"""Fusion: what goes into a convolution or linear layer, what does not, and that no pass changes
what the graph computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.lower.fusion import (
    ADD,
    CONVOLUTION,
    LINEAR,
    drop_copies,
    fuse_activation,
    fuse_padding,
    fuse_residual,
    make_functional,
    name_convolutions,
)
from golow.lower.graph import Graph, Symbol
from golow.lower.passes import drop_identities, eliminate_dead_code
from lowering import Case, count, only, ops

NAMED = (make_functional, drop_identities, drop_copies, name_convolutions)
FUSED = (*NAMED, fuse_padding, fuse_residual, fuse_activation, eliminate_dead_code)


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
    assert only(graph, CONVOLUTION).arguments[5] == (1, 1, 2, 2)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.ConvTranspose2d(4, 6, 3, stride=2), (2, 4, 5, 5)),
        (nn.Conv1d(4, 6, 3, padding=1), (2, 4, 9)),
        (nn.Conv3d(4, 6, 3, padding=1), (2, 4, 4, 4, 4)),
    ],
)
def test_other_convolutions_keep_theirs(layer: nn.Module, shape: tuple[int, ...]) -> None:
    for mode in ("infer", "train"):
        module = nn.Sequential(layer, nn.Flatten(), nn.LazyLinear(5))
        module(torch.zeros(shape))
        graph = Case(module, torch.randn(shape), mode=mode).after(*FUSED)
        assert not count(graph, CONVOLUTION)
        assert count(graph, LINEAR) == 1


def test_an_image_without_a_batch_is_left_alone() -> None:
    graph = fused(lambda m, x: m.first(x[0]))
    assert not count(graph, CONVOLUTION)


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
    ],
)
def test_zero_padding_goes_into_the_convolution(pad: nn.Module, sides: tuple[int, ...]) -> None:
    graph = convolved(nn.Sequential(pad, nn.Conv2d(4, 6, 3, padding=1)))
    assert ops(graph) == [CONVOLUTION]
    assert graph.nodes[0].arguments[5] == sides
    assert (graph.nodes[0].module, graph.nodes[0].absorbed) == ("1", ("0",))


@pytest.mark.parametrize(
    "pad",
    [
        nn.ConstantPad2d(1, 0.5),
        nn.ReflectionPad2d(1),
        nn.ReplicationPad2d(1),
        nn.ZeroPad2d(-1),
        nn.ZeroPad2d((1, -1, 1, 1)),
        nn.ConstantPad3d((0, 0, 0, 0, 0, 0), 0.0),  # of the channels too
    ],
)
def test_other_padding_stays(pad: nn.Module) -> None:
    graph = convolved(nn.Sequential(pad, nn.Conv2d(4, 6, 3, padding=1)))
    assert len(graph.nodes) == 2
    assert graph.nodes[1].arguments[5] == (1, 1, 1, 1)
    assert graph.nodes[1].absorbed == ()


def test_padding_that_another_reads_stays_for_it() -> None:
    graph = fused(lambda m, x: (m.second(p := functional.pad(x, (1, 1, 1, 1))), p))
    assert only(graph, CONVOLUTION).arguments[5] == (1, 1, 1, 1)
    assert only(graph, CONVOLUTION).absorbed == ()
    assert len(graph.nodes) == 2


def test_padding_that_the_backward_pass_reads_stays_for_it() -> None:
    module = nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(4, 6, 3), nn.Flatten(),
                           nn.Linear(6 * 6 * 7, 5))  # fmt: skip
    graph = Case(module, torch.randn(2, 4, 7, 8), mode="train").after(*FUSED)
    assert only(graph, CONVOLUTION).arguments[5] == (0, 0, 1, 1)
    assert count(graph, "aten.constant_pad_nd.default") == 1


# ---------------------------------------------------------------- residuals


@pytest.mark.parametrize(
    "function",
    [lambda m, x: m.first(x) + x, lambda m, x: x + m.first(x)],
    ids=["conv(x) + x", "x + conv(x)"],
)
def test_a_residual_goes_into_the_convolution(function: Callable[..., object]) -> None:
    graph = fused(function)
    assert ops(graph) == [CONVOLUTION]
    assert graph.nodes[0].arguments[3] is not None
    assert graph.nodes[0].module == "first"


def test_of_two_convolutions_the_later_takes_the_other() -> None:
    for function in (
        lambda m, x: m.first(x) + m.second(x),
        lambda m, x: (lambda a, b: b + a)(m.first(x), m.second(x)),
    ):
        graph = fused(function)
        assert ops(graph) == [CONVOLUTION, CONVOLUTION]
        assert [node.module for node in graph.nodes] == ["first", "second"]
        assert graph.nodes[1].arguments[3].name == graph.nodes[0].outputs[0].name


def test_a_chain_of_additions() -> None:
    """One addition fits; the second reads the first's result."""
    graph = fused(lambda m, x: m.first(x) + x + m.second(x))
    assert ops(graph) == [CONVOLUTION, CONVOLUTION]
    graph = fused(lambda m, x: (m.first(x) + x) + x)
    assert ops(graph) == [CONVOLUTION, "aten.add.Tensor"]


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
        assert graph.nodes[0].arguments[4] == ("gelu",)


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda m, x: (y := m.first(x)) + x + y, 2),  # the layer's result is read twice
        (lambda m, x: (y := m.first(x), y + x), 1),  # ... or returned
        (lambda m, x: (y := m.first(x)) + y, 1),
        (lambda m, x: m.first(x) + x[:, :1], 1),  # of another shape
        (lambda m, x: m.first(x) + x[:1], 1),
        (lambda m, x: m.first(x[:, :, :1]) + x, 1),  # the layer's own result is spread
        (lambda m, x: m.first(x) + x.double(), 1),  # of another dtype
        (lambda m, x: m.first(x) + 1.0, 1),
        (lambda m, x: torch.add(m.first(x), x, alpha=2), 1),
        (lambda m, x: m.act(m.first(x)) + x, 1),  # the activation comes first
    ],
)
def test_these_additions_stay(function: Callable[..., object], left: int) -> None:
    graph = fused(function)
    assert count(graph, "aten.add.Tensor") == left
    assert only(graph, CONVOLUTION).arguments[3] is None


# ---------------------------------------------------------------- activations

ACTIVATIONS = [
    (nn.ReLU(), ("relu",)),
    (nn.ReLU(inplace=True), ("relu",)),
    (nn.ReLU6(), ("clip", 0.0, 6.0)),
    (nn.Hardtanh(-0.5, 0.25), ("clip", -0.5, 0.25)),
    (nn.Hardtanh(), ("clip", -1.0, 1.0)),
    (nn.Tanh(), ("tanh",)),
    (nn.Sigmoid(), ("sigmoid",)),
    (nn.SiLU(), ("silu",)),
    (nn.GELU(), ("gelu",)),
    (nn.GELU("tanh"), ("gelu_tanh",)),
    (nn.ELU(), ("elu", 1.0)),
    (nn.ELU(0.5), ("elu", 0.5)),
    (nn.Hardswish(), ("hardswish",)),
    (nn.Hardsigmoid(), ("hardsigmoid",)),
]


@pytest.mark.parametrize(("layer", "wanted"), ACTIVATIONS, ids=[str(a) for a, _ in ACTIVATIONS])
def test_activations_go_into_what_makes_their_argument(
    layer: nn.Module, wanted: tuple[object, ...]
) -> None:
    graph = convolved(nn.Sequential(nn.Conv2d(4, 6, 3), layer))
    assert ops(graph) == [CONVOLUTION]
    assert graph.nodes[0].arguments[-1] == wanted
    assert (graph.nodes[0].module, graph.nodes[0].absorbed) == ("0", ("1",))
    graph = Case(nn.Sequential(nn.Linear(4, 6), layer), torch.randn(2, 4)).after(*FUSED)
    assert ops(graph) == [LINEAR]
    assert graph.nodes[0].arguments[-1] == wanted


@pytest.mark.parametrize(
    "layer", [nn.SELU(), nn.CELU(0.5), nn.LeakyReLU(0.1), nn.PReLU(), nn.Softplus(), nn.Mish()]
)
def test_other_activations_stay(layer: nn.Module) -> None:
    graph = convolved(nn.Sequential(nn.Conv2d(4, 6, 3), layer))
    assert only(graph, CONVOLUTION).arguments[-1] == ()
    assert len(graph.nodes) >= 2


def test_a_bound_at_infinity_stays() -> None:
    for mode in ("infer", "train"):
        module = nn.Sequential(nn.Linear(4, 6), nn.Hardtanh(float("-inf"), 0.5))
        graph = Case(module, torch.randn(2, 4), mode=mode).lowered()
        assert Symbol(kind="float", name="-inf") in only(graph, "aten.hardtanh.default").arguments


def test_the_second_activation_stays() -> None:
    graph = fused(lambda m, x: torch.tanh(torch.relu(m.first(x))))
    assert ops(graph) == [CONVOLUTION, "aten.tanh.default"]
    assert graph.nodes[0].arguments[-1] == ("relu",)


def test_an_activation_of_a_value_that_is_read_twice_stays() -> None:
    graph = fused(lambda m, x: (lambda y: torch.relu(y) + torch.tanh(y))(m.first(x)))
    assert only(graph, CONVOLUTION).arguments[-1] == ()
    graph = fused(lambda m, x: (y := m.first(x), torch.relu(y)))
    assert only(graph, CONVOLUTION).arguments[-1] == ()


def test_residual_and_activation_together() -> None:
    graph = fused(lambda m, x: m.act(m.second(torch.tanh(m.first(x))) + x))
    assert [node.arguments[-1] for node in graph.nodes] == [("tanh",), ("relu",)]
    assert graph.nodes[1].arguments[3] is not None
    assert "act" in graph.nodes[1].absorbed


def test_an_addition_takes_an_activation() -> None:
    graph = fused(lambda m, x: m.act(x + torch.exp(x)))
    assert ops(graph) == ["aten.exp.default", ADD]
    assert graph.nodes[1].arguments[-1] == ("relu",)


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: torch.relu(x + x[:, :1]),
        lambda m, x: torch.relu(x + 0.5),
        lambda m, x: torch.relu(torch.add(x, torch.exp(x), alpha=2)),
    ],
    ids=["spread", "number", "alpha"],
)
def test_these_additions_take_no_activation(function: Callable[..., object]) -> None:
    graph = fused(function)
    assert not count(graph, ADD)
    assert count(graph, "aten.relu.default") == 1

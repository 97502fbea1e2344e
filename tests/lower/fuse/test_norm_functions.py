"""Batch norm in training with activations that do not clip, and with sums; gradients of means over
whole images. `Case.after` holds every stage against the one before."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from golow.lower.fuse.epilogue_fusion import fuse_activation
from golow.lower.fuse.norm_functions import add_within_norms, fuse_batch_norm_function
from golow.lower.fuse.norm_fusion import fuse_batch_norm_activation, fuse_gradient_sum
from golow.lower.fuse.spread_gradients import spread_within_functions
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph
from golow.lower.operators.activation import Activate, ActivateBackward
from golow.lower.operators.adaptive_average_pool import AdaptiveAveragePoolBackward
from golow.lower.operators.batch_norm import BatchNorm, BatchNormBackward
from golow.lower.operators.binary import Binary
from golow.lower.recognise.training_idioms import name_global_pooling, take_gradients_from_results
from golow.lower.to_vocabulary import CANONICAL
from support.graphs.lowering import Case, count, records

BEFORE = (*CANONICAL, name_global_pooling, take_gradients_from_results, fuse_activation)
AFTER = (*BEFORE, fuse_batch_norm_function, add_within_norms, eliminate_dead_code)


class Layers(nn.Module):
    """Convolution, norm and activation; what the norm makes may be read by something else, too."""

    def __init__(self, activation: nn.Module, twice: bool = False) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.activation, self.twice, self.head = activation, twice, nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(self.conv(x))
        found = self.activation(normed)
        return self.head((found + normed if self.twice else found).mean((2, 3)))


class Bottleneck(nn.Module):
    """A residual block that ends with a norm and a sum. spread: what is added has one pixel."""

    def __init__(self, spread: bool = False) -> None:
        super().__init__()
        self.stem, self.conv, self.norm = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.spread, self.head = spread, nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        other = x.mean((2, 3), keepdim=True).expand_as(x) if self.spread else x
        return self.head((self.norm(self.conv(x)) + other).amax((2, 3)))


class Squeezed(nn.Module):
    """Squeeze and excitation after a norm and its activation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gate, self.head = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1), nn.Linear(4, 5)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        x = x * self.gate(x.mean((2, 3), keepdim=True)).sigmoid()
        return self.head(x.amax((2, 3)))


def case(module: nn.Module) -> Case:
    torch.manual_seed(0)
    return Case(module, torch.randn(3, 3, 6, 6), mode="train")


def norms(graph: Graph) -> tuple[list[str], list[str]]:
    """Names of the activations of norms, forward and backward."""
    found = (*records(graph, BatchNorm), *records(graph, BatchNormBackward))
    names = [(type(item), item.activation.name) for item in found if item.activation is not None]
    return (
        [name for kind, name in names if kind is BatchNorm],
        [name for kind, name in names if kind is BatchNormBackward],
    )


# Gradients that read the argument, and the result.
FUNCTIONS = {"silu": nn.SiLU(), "tanh": nn.Tanh()}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_norm_and_its_activation_become_one(name: str) -> None:
    graph = case(Layers(FUNCTIONS[name])).after(*AFTER)
    assert norms(graph) == ([name], [name])
    assert not count(graph, Activate) and not count(graph, ActivateBackward)


def test_a_norm_that_others_read_stays() -> None:
    assert norms(case(Layers(nn.SiLU(), twice=True)).after(*AFTER)) == ([], [])


@pytest.mark.parametrize("spread", [False, True])
def test_a_norm_adds_what_is_stored(spread: bool) -> None:
    graph = case(Bottleneck(spread)).after(*AFTER)
    (norm,) = records(graph, BatchNorm)
    assert (norm.residual is None) == spread
    forward = [Binary.of(node) for node in graph.nodes if node.phase == "forward"]
    assert sum(item is not None and item.function == "add" for item in forward) == 1 + spread


def test_the_gradient_of_a_mean_is_read_at_its_pixel() -> None:
    """A function adds it to the other gradient: the norm does not, for which both would be
    written."""
    before = case(Squeezed())
    assert count(before.after(*BEFORE), AdaptiveAveragePoolBackward) == 1
    fused = (fuse_batch_norm_activation, fuse_gradient_sum, spread_within_functions)
    graph = before.after(*BEFORE, *fused)
    assert not count(graph, AdaptiveAveragePoolBackward)
    (norm,) = records(graph, BatchNormBackward)
    assert norm.activation is not None and norm.second is None


def test_a_layer_reads_the_gradient_of_a_mean_at_all_pixels() -> None:
    layers = (nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    graph = case(nn.Sequential(*layers)).after(*BEFORE, spread_within_functions)
    assert count(graph, AdaptiveAveragePoolBackward) == 1

"""Batch norm with the residual and the activation that follow it, in both directions. `Case.after`
holds every stage against the one before."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from golow.lower.fuse.epilogue_fusion import fuse_activation
from golow.lower.fuse.norm_fusion import (
    compact_strided_gradients,
    fuse_batch_norm_activation,
    fuse_gradient_sum,
)
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph
from golow.lower.operators.activation import Activate, ActivateBackward
from golow.lower.operators.batch_norm import BatchNorm, BatchNormBackward
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import ConvolutionBackward
from golow.lower.recognise.training_idioms import take_gradients_from_results
from golow.lower.to_vocabulary import CANONICAL
from support.graphs.lowering import Case, count, records

BEFORE = (*CANONICAL, take_gradients_from_results, fuse_activation)
AFTER = (*BEFORE, fuse_batch_norm_activation, eliminate_dead_code)


class Block(nn.Module):
    """A residual block. shortcut: what stands beside the norm: the input itself, a convolution, or
    a convolution with a norm of its own."""

    def __init__(self, shortcut: str, activation: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        beside: dict[str, nn.Module] = {
            "itself": nn.Identity(),
            "convolution": nn.Conv2d(4, 4, 1),
            "norm": nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)),
        }
        self.beside, self.activation = beside[shortcut], activation
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head(self.activation(self.norm(self.conv(x)) + self.beside(x)).mean((2, 3)))


class Clipped(nn.Sequential):
    """A norm that a clip alone reads, as MobileNetV2 has them."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU6()),
            *(nn.Flatten(), nn.Linear(4 * 16, 5)),
        )


class ReadTwice(nn.Module):
    """The norm's own result goes on too, so nothing may be fused into it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(self.conv(x))
        return self.head((torch.clamp(normed, 0, 6).relu() + normed).mean((2, 3)))


def case(module: nn.Module) -> Case:
    torch.manual_seed(0)
    return Case(module, torch.randn(3, 3, 6, 6), mode="train")


def norms(graph: Graph) -> tuple[int, int, int, int]:
    """Norms with an activation and their gradients; those without."""
    forward, backward = records(graph, BatchNorm), records(graph, BatchNormBackward)
    fused = [sum(item.activation is not None for item in found) for found in (forward, backward)]
    return *fused, len(forward) - fused[0], len(backward) - fused[1]  # type: ignore[return-value]


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ReLU6()], ids=["relu", "clip"])
@pytest.mark.parametrize(
    ("shortcut", "wanted"),
    [("itself", (1, 1, 0, 0)), ("convolution", (1, 1, 0, 0)), ("norm", (1, 1, 1, 1))],
)
def test_norm_residual_and_activation_become_one(
    shortcut: str, wanted: tuple[int, ...], activation: nn.Module
) -> None:
    graph = case(Block(shortcut, activation)).after(*AFTER)
    assert norms(graph) == wanted
    (norm,) = (item for item in records(graph, BatchNorm) if item.activation is not None)
    assert norm.residual is not None
    assert not [item for item in records(graph, Binary) if item.activation is not None]
    assert not count(graph, Activate) and not count(graph, ActivateBackward)


def test_norm_and_clip_become_one() -> None:
    graph = case(Clipped()).after(*AFTER)
    assert norms(graph) == (1, 1, 0, 0)


def test_a_norm_that_others_read_stays() -> None:
    assert norms(case(ReadTwice()).after(*AFTER))[:2] == (0, 0)


def test_other_activations_stay() -> None:
    assert norms(case(Block("itself", nn.Tanh())).after(*AFTER))[:2] == (0, 0)


def test_the_sum_of_two_gradients_goes_into_the_norm_before_it() -> None:
    graph = case(TwoBlocks()).after(*BEFORE, fuse_batch_norm_activation, fuse_gradient_sum)
    fused = [item for item in records(graph, BatchNormBackward) if item.activation is not None]
    assert sorted(item.second is not None for item in fused) == [False, True]
    # What is left is the gradient of the stem, which no norm reads.
    backward = (Binary.of(node) for node in graph.nodes if node.phase == "backward")
    assert sum(item is not None and item.function == "add" for item in backward) == 1


@pytest.mark.parametrize("stride", [2, (1, 3)])
def test_a_strided_shortcut_gives_the_norm_before_it_the_pixels_that_it_reads(
    stride: int | tuple[int, int],
) -> None:
    passes = (fuse_batch_norm_activation, fuse_gradient_sum, compact_strided_gradients)
    graph = case(Strided(stride)).after(*BEFORE, *passes)
    (layer,) = (item for item in records(graph, ConvolutionBackward) if item.compact)
    (norm,) = (item for item in records(graph, BatchNormBackward) if item.step != (1, 1))
    assert norm.step == layer.stride
    whole, some = (graph.values()[ref.name].shape for ref in (norm.gradient, norm.second) if ref)
    steps = zip(whole[2:], norm.step, strict=True)
    assert some == (*whole[:2], *(-(-size // step) for size, step in steps))


@pytest.mark.parametrize("shortcut", ["wide", "read twice"])
def test_other_gradients_have_all_pixels(shortcut: str) -> None:
    passes = (fuse_batch_norm_activation, fuse_gradient_sum, compact_strided_gradients)
    graph = case(Strided(2, shortcut)).after(*BEFORE, *passes)
    assert not [item for item in records(graph, ConvolutionBackward) if item.compact]


class Strided(nn.Module):
    """A block that halves the image: its shortcut is a strided convolution of single pixels."""

    def __init__(self, stride: int | tuple[int, int], shortcut: str = "") -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.layer = nn.Conv2d(4, 4, 3, stride, 1)
        wide = shortcut == "wide"
        self.shortcut = nn.Conv2d(4, 4, 3 if wide else 1, stride, int(wide))
        self.twice = shortcut == "read twice"
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        stem = self.stem(x)
        total = self.layer(stem) + self.shortcut(stem)
        return self.head(total.mean((2, 3)) + (stem.mean((2, 3)) if self.twice else 0))


class TwoBlocks(nn.Module):
    """One residual block after the other: the gradient of what is between is a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4, track_running_stats=True) for _ in range(2))
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = torch.relu(norm(conv(x)) + x)
        return self.head(x.mean((2, 3)))

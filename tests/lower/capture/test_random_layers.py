"""Layers that drop something: known by their class, off in the check, and dropout in the graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.libtorch.emit import emit_program
from golow.lower.capture.capture import capture_training
from golow.lower.capture.random_masks import name_random_masks
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph, GraphOutput, print_python
from golow.lower.ir.pass_runner import apply
from golow.lower.ir.rewriting import result
from golow.lower.ir.verify import interpret
from golow.models.stochastic_depth import StochasticDepth
from golow.workload.prepare import prepare
from golow.workload.request import Request
from golow.workload.source import random_layers, random_layers_off
from support.models.model_files import imports_forgotten


class DropPath(nn.Module):
    """A sample's branch is dropped as packages write it: a mask filled in place, then divided."""

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        if self.drop_prob == 0.0 or not self.training:
            return x
        kept = 1 - self.drop_prob
        mask = x.new_empty((x.shape[0],) + (1,) * (x.dim() - 1)).bernoulli_(kept)
        return x * mask.div_(kept)


class Network(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.first, self.layer, self.last = nn.Conv2d(3, 4, 3), layer, nn.Linear(4, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.last(self.layer(self.first(images)).mean((2, 3)))


def captured(layer: nn.Module) -> Graph:
    images, labels = torch.randn(6, 3, 8, 8), torch.randint(5, (6,))
    found = capture_training("n", Network(layer), (images,), (labels,), functional.cross_entropy)
    return apply(found.graph, CLEAN_UP)


# ---------------------------------------------------------------- stochastic depth


def test_stochastic_depth_drops_whole_samples_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    layer = StochasticDepth(0.25)
    found = layer(torch.ones(20_000, 2, 3))
    assert found.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert torch.equal(found.amin((1, 2)), found.amax((1, 2)))
    assert found.mean() == pytest.approx(1.0, abs=0.02)
    branch = torch.randn(3, 2)
    assert layer.eval()(branch) is branch


# ---------------------------------------------------------------- which layers are random


@pytest.mark.parametrize(
    ("layer", "known"),
    [
        (StochasticDepth(0.1), [""]),
        (StochasticDepth(0.0), []),
        (nn.Dropout2d(0.5), [""]),
        (nn.MultiheadAttention(4, 2, dropout=0.1), [""]),
        (nn.TransformerDecoderLayer(4, 2, 8, 0.0), []),
        (nn.LSTM(4, 4, 2, dropout=0.1), [""]),
        (DropPath(0.1), []),  # a stranger: golow cannot know what its attribute means
    ],
    ids=lambda item: type(item).__name__,
)  # fmt: skip
def test_random_layers_are_known(layer: nn.Module, known: list[str]) -> None:
    assert random_layers(layer) == known
    with random_layers_off(layer):
        assert random_layers(layer) == []
    assert random_layers(layer) == known


@pytest.mark.parametrize(
    ("package", "name", "attribute"),
    [
        ("torchvision.ops.stochastic_depth", "StochasticDepth", "p"),
        ("timm.layers.drop", "DropPath", "drop_prob"),
    ],
)
def test_stochastic_depth_of_other_packages_is_known(
    package: str, name: str, attribute: str
) -> None:
    layer = type(name, (nn.Module,), {"__module__": package})()
    setattr(layer, attribute, 0.2)
    assert random_layers(nn.Sequential(layer)) == ["0"]
    with random_layers_off(layer):
        assert getattr(layer, attribute) == 0.0
    assert getattr(layer, attribute) == 0.2


PACKAGE = """
from torch import nn
from torch.nn import functional

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, dropout=0.5, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0].mean(1)
"""


def test_a_model_with_dropout_in_its_attention_is_trained(tmp_path: Path) -> None:
    (tmp_path / "attention.py").write_text(PACKAGE)
    with imports_forgotten():
        model = f"{tmp_path / 'attention.py'}:Attention"
        prepared = prepare(Request(model, input_shape=(4, 16), mode="train"))
    assert prepared.workload.random_layers == ("attention",)


# ---------------------------------------------------------------- the captured graph

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "stochastic depth": lambda: StochasticDepth(0.3),
    "channels": lambda: nn.Dropout2d(0.3),
    "another package's": lambda: DropPath(0.3),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_a_mask_is_dropout_of_ones(layer: Callable[[], nn.Module]) -> None:
    graph = captured(layer())
    assert "bernoulli" not in print_python(graph)
    [drawn] = [node for node in graph.nodes if node.op == "aten.native_dropout.default"]
    assert drawn.arguments[1] == pytest.approx(0.3)
    assert "probability(" in emit_program(graph)  # the emitted program can switch it off


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_the_mask_drops_and_scales(layer: Callable[[], nn.Module]) -> None:
    """Samples or channels are 0 or 1 / 0.7: the mask as a result of the graph."""
    torch.manual_seed(1)
    graph = captured(layer())
    [drawn] = [node for node in graph.nodes if node.op == "aten.native_dropout.default"]
    returned = GraphOutput(name=result(drawn), kind="output", target="mask")
    graph = msgspec.structs.replace(graph, outputs=(returned,))
    given = {
        item.value.name: torch.zeros(item.value.shape, dtype=getattr(torch, item.value.dtype))
        for item in graph.inputs
    }
    masks = torch.cat([interpret(graph, given)["output/mask"].flatten() for _ in range(20)])
    assert masks.unique().tolist() == pytest.approx([0.0, 1 / 0.7])


class ReadsItsDraws(DropPath):
    def forward(self, x: Tensor) -> Tensor:
        mask = x.new_empty((x.shape[0], 1, 1, 1)).bernoulli_(0.7)
        return x * (mask / 0.7) + mask


class ScalesOtherwise(DropPath):
    def forward(self, x: Tensor) -> Tensor:
        return x * x.new_empty((x.shape[0], 1, 1, 1)).bernoulli_(0.7) / 0.5


@pytest.mark.parametrize("layer", [ReadsItsDraws(0.3), ScalesOtherwise(0.3), nn.AlphaDropout(0.3)])
def test_other_draws_stay(layer: nn.Module) -> None:
    assert "aten.bernoulli.p" in print_python(captured(layer))


def test_a_mask_that_is_returned_stays() -> None:
    """A planted output of the graph: the draws themselves."""
    images, labels = torch.randn(6, 3, 8, 8), torch.randint(5, (6,))

    def loss(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
        return functional.cross_entropy(output[0], target)

    class Returns(Network):
        def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
            features = self.first(images)
            mask = features.new_empty((len(features), 1, 1, 1)).bernoulli_(0.7)
            return self.last((features * (mask / 0.7)).mean((2, 3))), mask

    found = capture_training("n", Returns(nn.Identity()), (images,), (labels,), loss).graph
    assert "aten.bernoulli.p" in print_python(found)
    assert name_random_masks(found) == found

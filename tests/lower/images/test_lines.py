"""Layers of one dimension hand images to one another: no view between them hides a convolution from
what it could absorb, and both direct levels compute what PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.onednn.level import probe
from golow.lower.ir.graph import Graph
from golow.lower.operators.activation import Activate, ActivateBackward
from golow.lower.operators.batch_norm import BatchNorm, BatchNormBackward, BatchNormInference
from golow.lower.operators.binary import Binary
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.pad import Pad
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.slice import Slice
from support.direct.in_process import assert_right
from support.graphs.lowering import Case, assert_close, count, records


class Lines(nn.Module):
    """Two convolutions of [N, 8, L], and something between them."""

    def __init__(self, between: Callable[[Tensor], Tensor] = lambda x: x, **layers: nn.Module):
        super().__init__()
        self.first, self.second = nn.Conv1d(8, 8, 3), nn.Conv1d(8, 4, 3)
        self.between = between
        self.layers = nn.ModuleDict(layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers.values():
            x = layer(x)
        return self.second(self.between(x)).flatten(1)


class Causal(nn.Module):
    """Dilated convolutions that see only what was before: padded at one end, or at both and cut."""

    def __init__(self, cuts: bool) -> None:
        super().__init__()
        self.cuts = cuts
        self.layers = nn.ModuleList(
            nn.Conv1d(8, 8, 3, dilation=d, padding=2 * d * cuts) for d in (1, 2, 4)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            ends = 2 * layer.dilation[0]
            y = layer(x)[..., :-ends] if self.cuts else layer(functional.pad(x, (ends, 0)))
            x = x + torch.relu(y)
        return x[:, :, -1]


def lowered(module: nn.Module) -> Graph:
    torch.manual_seed(0)
    case = Case(module.eval(), torch.randn(3, 8, 21))
    for level in ("onednn", "cudnn"):
        graph = case.lowered(level)  # type: ignore[arg-type]
        assert_close(case.run(graph), case.run(case.graph), level)
    return case.lowered("onednn")


SCALE = torch.randn(8, 1)
ABSORBED = {
    "an activation": Lines(relu=nn.ReLU()),
    "a batch norm": Lines(norm=nn.BatchNorm1d(8), relu=nn.ReLU()),
    "padding": Lines(lambda x: functional.pad(x, (3, 1))),
    "a pooling between": Lines(relu=nn.ReLU(), pool=nn.MaxPool1d(2)),
    "causal, padded": Causal(cuts=False),
    "causal, cut": Causal(cuts=True),
}
KEPT = {
    "a sum with a vector": Lines(lambda x: x + SCALE),
    "a function of two": Lines(lambda x: x.sigmoid() * x.tanh()),
    "parts": Lines(lambda x: torch.cat([x[:, :4], x[:, 4:] * 2], 1)),
    "parts of lines": Lines(lambda x: torch.cat([x, x.neg()], 2)),
    "the gated unit": Lines(lambda x: functional.glu(torch.cat([x, x * 3], 1), 1)),
}
ELSEWHERE = {
    "the result": nn.Sequential(nn.Conv1d(8, 4, 3), nn.ReLU()),
    "rows of tokens": Lines(lambda x: x.transpose(1, 2).softmax(-1).transpose(1, 2)),
    "a number": Lines(lambda x: x * x[0, 0, 0]),
    "without layers": nn.Sequential(nn.ReLU(), nn.Flatten()),
}


@pytest.mark.parametrize("name", ABSORBED)
def test_a_convolution_absorbs_what_stands_beside_it(name: str) -> None:
    graph = lowered(ABSORBED[name])
    for kind in (BatchNormInference, Pad, Activate):
        assert not count(graph, kind), kind
    assert count(graph, Slice) <= 1  # the last column of the result
    between = [reshape for reshape in records(graph, Reshape) if len(reshape.shape) == 3]
    assert len(between) <= 1


@pytest.mark.parametrize("name", KEPT)
def test_what_is_between_two_convolutions_is_of_images(name: str) -> None:
    graph = lowered(KEPT[name])
    shapes = {name: value.shape for name, value in graph.values().items()}
    convolutions = [shapes[layer.x.name] for layer in records(graph, Convolution)]
    assert all(len(shape) == 4 for shape in convolutions)
    for kind in (Binary, Concatenate):
        nodes = [node for node in graph.nodes if kind.of(node)]
        assert all(len(node.outputs[0].shape) == 4 for node in nodes if node.outputs[0])


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_line_that_something_else_reads_is_there(name: str) -> None:
    lowered(ELSEWHERE[name])


@pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")
@pytest.mark.parametrize("name", ABSORBED | KEPT | ELSEWHERE)
def test_onednn_computes_what_torch_does(name: str) -> None:
    from support.direct.onednn_in_process import compute, lower

    torch.manual_seed(0)
    module = (ABSORBED | KEPT | ELSEWHERE)[name].eval()
    network = lower(module, torch.randn(3, 8, 21), "infer")
    assert_right(network, compute(network))


# ---------------------------------------------------------------- training

TRAINED = ("a batch norm", "the gated unit")


@pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")
@pytest.mark.parametrize("name", TRAINED)
def test_training_is_what_torch_does(name: str) -> None:
    from support.direct.onednn_in_process import compute, lower

    torch.manual_seed(0)
    module = deepcopy((ABSORBED | KEPT)[name]).train()
    network = lower(module, torch.randn(3, 8, 21), "train")
    assert_right(network, compute(network))


def test_a_norm_absorbs_its_activation_in_training() -> None:
    torch.manual_seed(0)
    module = deepcopy(ABSORBED["a batch norm"]).train()
    case = Case(module, torch.randn(3, 8, 21), mode="train")
    for passes in case.direct_passes().values():
        graph = case.after(*passes)
        (norm,), (gradient,) = records(graph, BatchNorm), records(graph, BatchNormBackward)
        assert norm.activation is not None and gradient.activation is not None
        assert not count(graph, Activate) and not count(graph, ActivateBackward)

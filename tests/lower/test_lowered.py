"""Random networks, lowered as for the direct levels, compute what was captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.cudnn import planning as cudnn
from golow.levels.direct.onednn import planning as onednn
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.records.workload import Mode
from support.examples import examples
from support.graphs.lowering import Case, assert_close, in_place, ops
from support.graphs.parameter_updates import assert_updates_follow_the_last_read
from support.models.drawn_networks import Residual, networks

Drawn = tuple[nn.Module, tuple[int, ...]]


class Joined(nn.Module):
    """Two branches that meet: by an addition with or without a factor, or spread over the image."""

    def __init__(self, channels: int, how: str, bias: bool) -> None:
        super().__init__()
        self.left = nn.Conv2d(channels, channels, 3, padding=1, bias=bias)
        self.right = nn.Conv2d(channels, channels, 1, bias=bias)
        self.bn = nn.BatchNorm2d(channels)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.bn(self.left(x)), self.right(x)
        if self.how == "alpha":
            return torch.add(left, right, alpha=0.5)
        if self.how == "spread":
            return left + functional.relu(right.mean((2, 3), keepdim=True))
        if self.how == "gate":
            return left * torch.sigmoid(right)
        return functional.relu6(left + right)


@st.composite
def branching(draw: st.DrawFn) -> Drawn:
    """What `networks` leaves out: branches, padding of its own, more activations, tiny images."""
    channels, shape = 4, (3, draw(st.integers(2, 7)), draw(st.integers(2, 7)))
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1)]
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["joined", "padded", "act", "same", "residual", "stride"]))
        if kind == "joined":
            how = draw(st.sampled_from(["add", "alpha", "spread", "gate"]))
            layers.append(Joined(channels, how, draw(st.booleans())))
        elif kind == "padded":
            sides = tuple(draw(st.integers(0, 2)) for _ in range(4))
            number = draw(st.sampled_from([0.0, 0.0, 1.0]))
            layers += [nn.ConstantPad2d(sides, number), nn.Conv2d(channels, channels, 2, padding=1)]
        elif kind == "act":
            names = (nn.SiLU, nn.GELU, nn.Hardswish, nn.ELU, nn.Sigmoid, nn.ReLU)
            layers.append(draw(st.sampled_from(names))())
        elif kind == "same":
            layers.append(nn.Conv2d(channels, channels, (2, 3), padding="same", dilation=2))
        elif kind == "residual":
            layers.append(Residual(channels, groups=draw(st.sampled_from([1, 4]))))
        else:
            layers.append(nn.Conv2d(channels, channels, 3, stride=2, padding=1))
    norm = [nn.BatchNorm1d(6), nn.ReLU(inplace=True)] if draw(st.booleans()) else []
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 6), *norm]
    return nn.Sequential(*layers, nn.Linear(6, 5)), shape


def lowered_as_captured(case: Case) -> list[Graph]:
    """The graphs of both direct levels; each computes what was captured."""
    wanted = case.run(case.graph)
    kinds = {name.partition("/")[0] for name in wanted}
    training = case.graph.mode == "train"
    assert kinds >= ({"loss", "output", "gradient"} if training else {"output"})
    graphs = []
    for level, passes in case.direct_passes().items():
        graph = apply(case.graph, passes)
        assert not in_place(graph)
        assert_close(case.run(graph), wanted, level)
        graphs.append(graph)
    return graphs


@pytest.mark.slow
@examples(12)
@given(st.one_of(networks(), branching()))
def test_lowered_for_inference(drawn: Drawn) -> None:
    module, shape = drawn
    lowered_as_captured(Case(module, torch.randn(2, *shape)))


@pytest.mark.slow
@examples(12)
@given(st.one_of(networks(), branching()))
def test_lowered_for_training(drawn: Drawn) -> None:
    module, shape = drawn
    for graph in lowered_as_captured(Case(module, torch.randn(4, *shape), mode="train")):
        assert_updates_follow_the_last_read(graph)
        updated = {item.target for item in graph.outputs if item.kind == "parameter"}
        assert updated == {name for name, _ in cast(nn.Module, module).named_parameters()}


# ---------------------------------------------------------------- attention


class Attention(nn.Module):
    """Multi-head attention of a sequence to itself, and classes."""

    def __init__(self, weights: bool, causal: bool = False) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.head, self.weights, self.causal = nn.Linear(16, 5), weights, causal

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1]) if self.causal else None
        y = self.attention(x, x, x, need_weights=self.weights, attn_mask=mask)[0]
        return self.head(y.mean(1))


class Encoder(nn.Module):
    """A layer of a transformer, and classes."""

    def __init__(self, **settings: object) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, **settings)  # type: ignore[arg-type]
        self.head, self.axis = nn.Linear(16, 5), 1 if self.layer.self_attn.batch_first else 0

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.axis else x.transpose(0, 1)
        return self.head(self.layer(x).mean(self.axis))


SEQUENCES: dict[str, Callable[[], nn.Module]] = {
    "attention with weights": lambda: Attention(weights=True),
    "attention without": lambda: Attention(weights=False),
    "causal, with weights": lambda: Attention(weights=True, causal=True),
    "causal, without": lambda: Attention(weights=False, causal=True),
    # Without dropout: golow does not train what is random beyond its nn.Dropout layers.
    "encoder": lambda: Encoder(dropout=0.0, batch_first=True),
    "encoder, sequence first": lambda: Encoder(dropout=0.0),
    "encoder, norm first": lambda: Encoder(
        dropout=0.0, norm_first=True, activation="gelu", batch_first=True
    ),
}

REQUIRE = {"onednn": onednn.require_runnable, "cudnn": cudnn.require_runnable}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", SEQUENCES)
def test_attention_is_lowered_and_equals_the_captured_graph(name: str, mode: Mode) -> None:
    torch.manual_seed(0)
    case = Case(SEQUENCES[name](), torch.randn(2, 6, 16), mode=mode)
    assert any("clone" in op or "contiguous" in op for op in ops(case.graph))  # before a view
    for level in ("onednn", "cudnn"):
        graph = case.lowered(level)  # type: ignore[arg-type]
        assert not {op for op in ops(graph) if not op.startswith("golow.")}
        REQUIRE[level](graph)

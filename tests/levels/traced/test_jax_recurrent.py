"""Recurrent layers at `jax`: scans over the time steps, against float64 with their gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from golow.levels.traced.jax.level import probe

if not probe().available:
    pytest.skip("JAX is not installed", allow_module_level=True)

from golow.levels.traced.jax import level as level
from golow.levels.traced.jax.recurrent import SHORTEST
from golow.lower.operators.recurrence import Recurrence
from golow.records.workload import Mode
from support.direct.in_process import Network, assert_right
from support.direct.jax_in_process import compute, lower
from support.models.many_operators import Recurrent, of_tokens

LAYERS = {
    "lstm": lambda: nn.LSTM(16, 8, batch_first=True),
    "lstm, two layers both ways": lambda: nn.LSTM(16, 8, 2, batch_first=True, bidirectional=True),
    "lstm without biases": lambda: nn.LSTM(16, 8, bias=False),
    "lstm, projected": lambda: nn.LSTM(16, 12, proj_size=5, batch_first=True, bidirectional=True),
    "gru both ways": lambda: nn.GRU(16, 8, batch_first=True, bidirectional=True),
    "gru without biases": lambda: nn.GRU(16, 8, bias=False, batch_first=True),
    "rnn": lambda: nn.RNN(16, 8, 2, batch_first=True),
    "rnn of relu, backwards too": lambda: nn.RNN(16, 8, nonlinearity="relu", bidirectional=True),
}
modes = pytest.mark.parametrize("mode", ["infer", "train"])


class Widened(nn.Module):
    """The mean of the layer's results, as wide as its input."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = Recurrent(layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).mean(2, keepdim=True).expand(-1, -1, 16)


def network_of(name: str, mode: Mode, steps: int = 7) -> Network:
    torch.manual_seed(0)
    # Five is the batch, or the steps where these come first.
    return lower(of_tokens(Widened(LAYERS[name]())).make(), torch.randn(5, steps, 16), mode)


def scans(network: Network) -> int:
    return sum(Recurrence.of(node) is not None for node in network.graph.nodes)


@modes
@pytest.mark.parametrize("name", LAYERS)
def test_it_is_right(name: str, mode: Mode) -> None:
    network = network_of(name, mode)
    assert scans(network)
    assert_right(network, compute(network))


@modes
def test_a_few_steps_are_written_out(mode: Mode) -> None:
    network = network_of("lstm", mode, SHORTEST - 1)
    assert not scans(network)
    assert_right(network, compute(network))


def test_layers_with_dropout_between_them_are_scans() -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(16, 8, 2, batch_first=True, dropout=0.5)
    network = lower(of_tokens(Widened(layer)).make(), torch.randn(5, 7, 16), "train")
    assert scans(network) == 2


def test_the_source_defines_what_it_calls_once() -> None:
    network = network_of("lstm, two layers both ways", "infer")
    text = level.source(network.graph, network.prepared.workload)
    assert scans(network) == 4
    assert text.count("\ndef lstm(") == 1
    assert text.count("lstm(") == 5
    assert "def gru" not in text

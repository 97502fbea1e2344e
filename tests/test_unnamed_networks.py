"""Networks of a dozen lines that no issue names, at `onednn` against float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.vendor.onednn import probe
from golow.record import Mode

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

from in_process import assert_right
from onednn_in_process import compute, lower


class GraphNetwork(nn.Module):
    """Messages along edges, averaged by `index_add`, then summed by `scatter_add`."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(8, 8), nn.Linear(16, 8)
        self.register_buffer("source", torch.tensor([0, 1, 2, 3, 4, 5, 0, 2]))
        self.register_buffer("target", torch.tensor([1, 2, 3, 4, 5, 0, 3, 5]))

    def forward(self, x: Tensor) -> Tensor:
        sent = torch.relu(self.message(x[:, self.source]))
        received = torch.zeros_like(x).index_add(1, self.target, sent)
        degree = torch.zeros(6).scatter_add(0, self.target, torch.ones(8))
        mean = received / degree[:, None].clamp(min=1)
        hidden = torch.tanh(self.update(torch.cat([x, mean], -1)))
        places = self.target[None, :, None].expand(x.shape[0], -1, 8)
        return torch.zeros_like(x).scatter_add(1, places, self.message(hidden[:, self.source]))


class WaveNet(nn.Module):
    """Dilated causal convolutions of a signal with gates."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(1, 8, 1), nn.Conv1d(8, 4, 1)
        self.gates = nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=2**k) for k in range(3))
        self.mixes = nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        skipped = torch.zeros_like(x)
        for k, (gate, mix) in enumerate(zip(self.gates, self.mixes, strict=True)):
            value, opened = gate(functional.pad(x, (2**k, 0))).chunk(2, 1)
            new = mix(torch.tanh(value) * torch.sigmoid(opened))
            x, skipped = x + new, skipped + new
        return self.last(torch.relu(skipped))


class StateSpace(nn.Module):
    """A selective scan, by running sums and products."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.last = nn.Linear(8, 25), nn.Linear(8, 4)
        self.rate = nn.Parameter(torch.rand(8))

    def forward(self, x: Tensor) -> Tensor:
        step, entry, leaving, gate = self.project(x).split([8, 8, 8, 1], -1)
        step = functional.softplus(step)
        kept = torch.cumprod(torch.exp(-step * self.rate.exp()), 1)
        state = kept * torch.cumsum(step * entry * x / kept, 1)
        return self.last(state * leaving) * torch.sigmoid(gate) + torch.logcumsumexp(gate, 1)


class Experts(nn.Module):
    """The two best of four experts for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.weight = nn.Linear(8, 4), nn.Parameter(torch.randn(4, 8, 6))

    def forward(self, x: Tensor) -> Tensor:
        scores, chosen = self.gate(x).topk(2, -1)
        each = torch.einsum("btc,eco->bteo", x, self.weight)
        best = each.gather(2, chosen[..., None].expand(-1, -1, -1, 6))
        return (best * scores.softmax(-1)[..., None]).sum(2)


class Capsules(nn.Module):
    """Routing by agreement."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, 6, 3, 8, 4) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        votes = torch.matmul(squashed(x)[:, :, None, None, :], self.weight).squeeze(-2)
        agreed = torch.zeros(x.shape[0], 6, 3, 1)
        for _ in range(3):
            routed = squashed((agreed.softmax(2) * votes).sum(1, keepdim=True))
            agreed = agreed + (votes * routed).sum(-1, keepdim=True)
        return routed.squeeze(1).norm(dim=-1)


def squashed(x: Tensor) -> Tensor:
    """Vectors of the same direction, shorter than 1."""
    size = (x * x).sum(-1, keepdim=True)
    return size / (1 + size) * x / torch.sqrt(size + 1e-8)


class RadianceField(nn.Module):
    """Points in a positional encoding, and the light along their ray."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(27, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        waves = (x[..., None] * (2.0 ** torch.arange(4) * math.pi)).flatten(-2)
        found = self.last(torch.relu(self.first(torch.cat([x, waves.sin(), waves.cos()], -1))))
        stopped = 1 - torch.exp(-0.1 * functional.softplus(found[..., 3]))
        passed = torch.cat([torch.ones_like(stopped[:, :1]), 1 - stopped], 1).cumprod(1)[:, :-1]
        return ((stopped * passed)[..., None] * torch.sigmoid(found[..., :3])).sum(1)


class Hypernetwork(nn.Module):
    """Weights of a convolution and a linear layer that another network computes."""

    def __init__(self) -> None:
        super().__init__()
        self.code = nn.Parameter(torch.randn(2, 6))
        self.kernels, self.weights = nn.Linear(6, 108), nn.Linear(6, 25)

    def forward(self, x: Tensor) -> Tensor:
        kernel, weights = self.kernels(self.code[0]).view(4, 3, 3, 3), self.weights(self.code[1])
        found = torch.relu(functional.conv2d(x, kernel, padding=1)).mean((2, 3))
        return functional.linear(found, weights[:20].view(5, 4), weights[20:])


class DynamicFilter(nn.Module):
    """A kernel for each sample, from the sample: samples are the groups of a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = nn.Linear(3, 108)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, *size = x.shape
        kernel = self.kernels(x.mean((2, 3))).reshape(batch * 4, 3, 3, 3)
        image = x.reshape(1, batch * channels, *size)
        return functional.conv2d(image, kernel, padding=1, groups=batch).view(batch, 4, *size)


NETWORKS = {
    GraphNetwork: (2, 6, 8),
    WaveNet: (2, 1, 16),
    StateSpace: (2, 7, 8),
    Experts: (2, 3, 8),
    Capsules: (2, 6, 8),
    RadianceField: (2, 6, 3),
    Hypernetwork: (2, 3, 8, 8),
    DynamicFilter: (2, 3, 8, 8),
}


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_that_nobody_named_is_right(network: type[nn.Module], mode: Mode) -> None:
    torch.manual_seed(0)
    lowered = lower(network(), torch.randn(NETWORKS[network]), mode, loss="mse_of_outputs")
    assert_right(lowered, compute(lowered))

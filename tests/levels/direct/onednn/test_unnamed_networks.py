"""Networks of a dozen lines that no issue names, at `onednn` against float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.onednn.level import probe
from golow.records.workload import Mode

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

from support.direct.in_process import assert_right
from support.direct.onednn_in_process import compute, lower
from support.examples import most_in_training


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


class Flow(nn.Module):
    """Affine couplings, the likelihood, and the inverse of a moved code."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nn.Linear(4, 8) for _ in range(3))

    def moved(self, x: Tensor, net: nn.Module, inverse: bool) -> tuple[Tensor, Tensor]:
        kept, changed = x.chunk(2, -1)
        scale, shift = net(kept).chunk(2, -1)
        scale = torch.tanh(scale)
        new = (changed - shift) * torch.exp(-scale) if inverse else changed * scale.exp() + shift
        return torch.cat([new, kept], -1), scale.sum(-1)

    def forward(self, x: Tensor) -> Tensor:
        code, volume = x, torch.zeros(len(x))
        for net in self.nets:
            code, grown = self.moved(code, net, inverse=False)
            volume = volume + grown
        likelihood = volume - 0.5 * (code * code).sum(-1)
        back = code + 0.1
        for net in self.nets:
            back, _ = self.moved(back, net, inverse=True)
        return torch.cat([back, likelihood[:, None]], -1)


class RelativeAttention(nn.Module):
    """Transformer-XL: a memory in front, and distances shifted into place by reshaping."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.places = nn.Linear(8, 24), nn.Linear(8, 8, bias=False)
        self.content, self.place = (nn.Parameter(torch.randn(2, 4) * 0.1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        batch, total, _ = x.shape
        query, key, value = self.project(x).view(batch, total, 2, 12).chunk(3, -1)
        new = total // 2
        query = query[:, -new:]
        angles = torch.arange(total - 1, -1, -1.0)[:, None] / 10 ** torch.arange(4.0)
        far = self.places(torch.cat([angles.sin(), angles.cos()], -1)).view(total, 2, 4)
        by_place = torch.einsum("bihd,jhd->bhij", query + self.place, far)
        shifted = torch.cat([torch.zeros(batch, 2, new, 1), by_place], -1)
        shifted = shifted.view(batch, 2, total + 1, new)[:, :, 1:].view(batch, 2, new, total)
        scores = torch.einsum("bihd,bjhd->bhij", query + self.content, key) + shifted
        later = torch.triu(torch.ones(new, total, dtype=torch.bool), 1 + total - new)
        weights = scores.masked_fill(later, -math.inf).softmax(-1)
        return torch.einsum("bhij,bjhd->bihd", weights, value).reshape(batch, new, 8)


class Sparsemax(nn.Module):
    """A set of varying size, its members weighted by sparsemax: sorting and running sums."""

    def __init__(self) -> None:
        super().__init__()
        self.member, self.query = nn.Linear(4, 8), nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.member(x))
        size = x.shape[1]
        there = torch.arange(size) < torch.arange(len(x))[:, None] + 2
        scores = (hidden @ self.query).masked_fill(~there, -100.0)
        ordered, _ = scores.sort(-1, descending=True)
        sums = ordered.cumsum(-1)
        support = (1 + torch.arange(1, size + 1.0) * ordered > sums).sum(-1, keepdim=True)
        weights = (scores - (sums.gather(-1, support - 1) - 1) / support).clamp(min=0)
        return (weights[..., None] * hidden).sum(1)


class PointCloud(nn.Module):
    """Points turned by a matrix that they give, batch norm over them, and the largest of each."""

    def __init__(self) -> None:
        super().__init__()
        self.turn, self.last = nn.Linear(3, 9), nn.Linear(8, 4)
        self.points = nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        matrix = self.turn(x.amax(1)).view(-1, 3, 3) + torch.eye(3)
        return self.last(self.points(torch.bmm(x, matrix).mT).max(-1)[0])


class KeyCache(nn.Module):
    """Decodes token by token and writes keys, values and results into their places."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        kept = torch.zeros(2, *x.shape)
        found = torch.empty_like(x)
        for step in range(x.shape[1]):
            query, kept[0, :, step], kept[1, :, step] = self.project(x[:, step]).chunk(3, -1)
            keys, values = kept[:, :, : step + 1]
            weights = (keys @ query[..., None]).softmax(1)
            found[:, step] = (weights * values).sum(1)
        return found


NETWORKS = {
    Flow: (3, 8),
    RelativeAttention: (2, 6, 8),
    Sparsemax: (3, 5, 4),
    PointCloud: (2, 7, 3),
    GraphNetwork: (2, 6, 8),
    WaveNet: (2, 1, 16),
    StateSpace: (2, 7, 8),
    Experts: (2, 3, 8),
    Capsules: (2, 6, 8),
    RadianceField: (2, 6, 3),
    Hypernetwork: (2, 3, 8, 8),
    DynamicFilter: (2, 3, 8, 8),
}


@pytest.mark.slow
@most_in_training
@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_that_nobody_named_is_right(network: type[nn.Module], mode: Mode) -> None:
    torch.manual_seed(0)
    lowered = lower(network(), torch.randn(NETWORKS[network]), mode, loss="mse_of_outputs")
    assert_right(lowered, compute(lowered))


@pytest.mark.slow
def test_a_cache_that_is_written_in_place_is_right() -> None:
    torch.manual_seed(0)
    lowered = lower(KeyCache(), torch.randn(2, 4, 8), "infer")
    assert_right(lowered, compute(lowered))

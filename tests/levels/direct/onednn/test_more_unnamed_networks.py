"""Further networks of a dozen lines that no issue names, at `onednn` against float64, and their
plans at `cudnn`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.onednn.level import probe
from golow.records.workload import Mode

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

from support.direct.cudnn_plans import assert_sound, built
from support.direct.in_process import assert_right
from support.direct.onednn_in_process import compute, lower
from support.examples import most_in_training


class Splines(nn.Module):
    """A layer of Kolmogorov-Arnold networks: cubic B-splines by the recursion of Cox and de Boor
    (Liu et al. 2024, arXiv:2404.19756)."""

    def __init__(self) -> None:
        super().__init__()
        grid = torch.arange(-3, 9) * 0.4 - 1
        self.register_buffer("grid", grid.expand(6, -1).contiguous())
        self.base = nn.Parameter(torch.randn(5, 6) * 0.3)
        self.spline = nn.Parameter(torch.randn(5, 6, 8) * 0.3)
        self.scale = nn.Parameter(torch.rand(5, 6))

    def forward(self, x: Tensor) -> Tensor:
        x, grid = x.unsqueeze(-1), self.grid
        bases = ((x >= grid[:, :-1]) & (x < grid[:, 1:])).to(x.dtype)
        for k in range(1, 4):
            left = (x - grid[:, : -(k + 1)]) / (grid[:, k:-1] - grid[:, : -(k + 1)])
            right = (grid[:, k + 1 :] - x) / (grid[:, k + 1 :] - grid[:, 1:-k])
            bases = left * bases[..., :-1] + right * bases[..., 1:]
        weights = (self.spline * self.scale[..., None]).view(5, -1)
        plain = functional.linear(functional.silu(x.squeeze(-1)), self.base)
        return plain + functional.linear(bases.flatten(1), weights)


class Perceiver(nn.Module):
    """Latent vectors that attend to the input, then to one another (Jaegle et al. 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(4, 16))
        self.norm, self.cross = nn.LayerNorm(16), nn.MultiheadAttention(16, 2, batch_first=True)
        self.own = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
        self.last = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        latents = self.latents.expand(len(x), -1, -1)
        latents = latents + self.cross(self.norm(latents), x, x, need_weights=False)[0]
        return self.last(self.own(latents).mean(1))


class FourierMixer(nn.Module):
    """Tokens mixed by the real part of two Fourier transforms (Lee-Thorp et al. 2021), and a
    learned filter of frequencies (Rao et al. 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4)
        self.filter = nn.Parameter(torch.randn(5, 8, 2) * 0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x + torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real)
        frequencies = torch.fft.rfft(x, dim=1, norm="ortho")
        weighted = frequencies * torch.view_as_complex(self.filter)
        x = x + torch.fft.irfft(weighted, n=x.shape[1], dim=1, norm="ortho")
        return self.last(functional.gelu(self.first(x))).mean(1)


class Deformable(nn.Module):
    """A convolution whose taps are moved by offsets that a layer predicts (Dai et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.offsets = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 18, 3, padding=1)
        self.weight, self.last = nn.Parameter(torch.randn(6, 4, 9) * 0.2), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        batch, _, height, width = x.shape
        moved = self.offsets(x).view(batch, 9, 2, height, width)
        taps = torch.stack(torch.meshgrid(torch.arange(3), torch.arange(3), indexing="ij"), 0) - 1
        rows = torch.arange(height).view(-1, 1) + taps[0].view(9, 1, 1) + moved[:, :, 0]
        columns = torch.arange(width) + taps[1].view(9, 1, 1) + moved[:, :, 1]
        scaled = torch.stack([2 * columns / (width - 1) - 1, 2 * rows / (height - 1) - 1], -1)
        grid = scaled.view(batch, 9 * height, width, 2)
        taken = functional.grid_sample(x, grid, align_corners=True)
        taken = taken.view(batch, 4, 9, height, width)
        return self.last(torch.einsum("bckhw,ock->bohw", taken, self.weight).relu().mean((2, 3)))


class Involution(nn.Module):
    """Kernels that each pixel makes for itself (Li et al. 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.reduce = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)
        self.span, self.last = nn.Conv2d(4, 18, 1), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        batch, channels, height, width = x.shape
        kernels = self.span(self.reduce(x).relu()).view(batch, 2, 1, 9, height, width)
        taps = functional.unfold(x, 3, padding=1).view(batch, 2, channels // 2, 9, height, width)
        return self.last((kernels * taps).sum(3).view(batch, channels, height, width).mean((2, 3)))


class Pooling(nn.Module):
    """Pixels mixed by averages of the normalised image less itself (Yu et al. 2022)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(3, 8, 1), nn.GroupNorm(1, 8), nn.Linear(8, 3)
        self.scale = nn.Parameter(torch.rand(8, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        y = self.norm(x)
        x = x + self.scale * (functional.avg_pool2d(y, 3, 1, 1, count_include_pad=False) - y)
        return self.last(x.relu().mean((2, 3)))


class Switch(nn.Module):
    """One expert for each token, each with room for few (Fedus et al. 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 3)
        self.inner, self.outer = (nn.Parameter(torch.randn(3, 8, 8) * 0.4) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weight, chosen = self.gate(tokens).softmax(-1).max(-1)
        marked = functional.one_hot(chosen, 3)
        place = (marked.cumsum(0) * marked).sum(-1) - 1
        fits = place < 4
        slot = torch.where(fits, chosen * 4 + place, 12)
        rows = torch.zeros(13, 8).index_copy(0, slot, tokens)[:12].view(3, 4, 8)
        found = torch.bmm(torch.bmm(rows, self.inner).relu(), self.outer).view(12, 8)
        found = torch.cat([found, torch.zeros(1, 8)])[slot]
        return (tokens + found * (weight * fits)[:, None]).view_as(x)


class Differential(nn.Module):
    """A differential equation by four steps of the classical method of Runge and Kutta (Chen et
    al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.last = nn.Linear(7, 12), nn.Linear(12, 6), nn.Linear(6, 3)

    def slope(self, time: float, x: Tensor) -> Tensor:
        given = torch.cat([x, torch.full_like(x[:, :1], time)], 1)
        return self.outer(torch.tanh(self.inner(given)))

    def forward(self, x: Tensor) -> Tensor:
        step = 0.25
        for index in range(4):
            time = index * step
            one = self.slope(time, x)
            two = self.slope(time + step / 2, x + step / 2 * one)
            three = self.slope(time + step / 2, x + step / 2 * two)
            four = self.slope(time + step, x + step * three)
            x = x + step / 6 * (one + 2 * two + 2 * three + four)
        return self.last(x)


class GatedLinearAttention(nn.Module):
    """A state that decays by a gate of each channel, token by token (Yang et al. 2023)."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.gate, self.last = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = self.project(x).view(batch, length, 3, 2, 4).unbind(2)
        kept = torch.sigmoid(self.gate(x)).view(batch, length, 2, 4) ** (1 / 4)
        state, found = torch.zeros(batch, 2, 4, 4), []
        for t in range(length):
            state = state * kept[:, t, :, :, None] + key[:, t, :, :, None] * value[:, t, :, None]
            found.append(torch.einsum("bhk,bhkv->bhv", query[:, t], state))
        return self.last(functional.rms_norm(torch.stack(found, 1), (4,)).flatten(2))


class DeltaRule(nn.Module):
    """A chunk of a delta network, whose updates solve a triangular system (Yang et al. 2024)."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.strength = nn.Linear(8, 24), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.project(x).chunk(3, -1)
        key, strength = functional.normalize(key, dim=-1), torch.sigmoid(self.strength(x))
        system = (strength * key) @ key.mT
        new = torch.linalg.solve_triangular(
            system, strength * value, upper=False, unitriangular=True
        )
        return (query @ key.mT).tril() @ new


class Retention(nn.Module):
    """Attention without softmax, with weights that decay by distance, and group norm of heads
    (Sun et al. 2023)."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.norm = nn.Linear(8, 32), nn.GroupNorm(2, 8)
        self.last = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value, gate = self.project(x).chunk(4, -1)
        heads = (t.view(batch, length, 2, 4).transpose(1, 2) for t in (query, key, value))
        query, key, value = heads
        decay = (1 - 2.0 ** (-5 - torch.arange(2.0))).log()[:, None, None]
        apart = torch.arange(length)[:, None] - torch.arange(length)
        weights = torch.where(apart >= 0, (apart * decay).exp(), 0.0)
        found = (query @ key.mT / 2 * weights) @ value
        found = self.norm(found.transpose(1, 2).reshape(batch * length, 8)).view(batch, length, 8)
        return self.last(functional.silu(gate) * found)


class TimeMix(nn.Module):
    """The recurrence of RWKV-4 in its stable form, and shifted tokens (Peng et al. 2023)."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.rand(3, 8))
        self.key, self.value, self.receptance = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.decay, self.first = nn.Parameter(torch.rand(8)), nn.Parameter(torch.rand(8))
        self.last = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        before = functional.pad(x, (0, 0, 1, -1))
        of_key, of_value, of_receptance = (before + (x - before) * mix for mix in self.mix)
        key, value = self.key(of_key), self.value(of_value)
        above, below = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
        most, found = torch.full_like(above, -1e38), []
        for t in range(x.shape[1]):
            k, v = key[:, t], value[:, t]
            top = torch.maximum(most, self.first + k)
            old, new = torch.exp(most - top), torch.exp(self.first + k - top)
            found.append((old * above + new * v) / (old * below + new))
            kept = most - torch.exp(self.decay)
            most = torch.maximum(kept, k)
            old, new = torch.exp(kept - most), torch.exp(k - most)
            above, below = old * above + new * v, old * below + new
        return self.last(torch.sigmoid(self.receptance(of_receptance)) * torch.stack(found, 1))


class GraphAttention(nn.Module):
    """A softmax over the edges of each node, by scattered maxima and sums (Velickovic et al.
    2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.score = nn.Linear(8, 8), nn.Linear(16, 1)
        self.register_buffer("source", torch.tensor([0, 1, 2, 3, 4, 5, 0, 2, 4]))
        self.register_buffer("target", torch.tensor([1, 2, 3, 4, 5, 0, 3, 5, 1]))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        pair = torch.cat([x[self.source], x[self.target]], -1)
        scores = functional.leaky_relu(self.score(pair).squeeze(-1), 0.2)
        most = torch.full((6,), -torch.inf).scatter_reduce(0, self.target, scores, "amax")
        weights = (scores - most.detach()[self.target]).exp()
        total = torch.zeros(6).index_add(0, self.target, weights)
        sent = x[self.source] * (weights / total[self.target])[:, None]
        return torch.zeros_like(x).index_add(0, self.target, sent)


class Codebook(nn.Module):
    """Vectors replaced by the nearest of a codebook, with gradients straight through (van den Oord
    et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Conv2d(3, 4, 2, stride=2), nn.ConvTranspose2d(4, 3, 2, 2)
        self.codes = nn.Embedding(7, 4)

    def forward(self, x: Tensor) -> Tensor:
        z = self.encode(x).permute(0, 2, 3, 1)
        flat, codes = z.reshape(-1, 4), self.codes.weight
        far = flat.square().sum(1, keepdim=True) + codes.square().sum(1) - 2 * flat @ codes.t()
        nearest = self.codes(far.argmin(1)).view_as(z)
        lost = (nearest - z.detach()).square().mean((1, 2, 3)) + (
            0.25 * (nearest.detach() - z).square().mean((1, 2, 3))
        )
        found = self.decode((z + (nearest - z).detach()).permute(0, 3, 1, 2))
        return found.flatten(1) + lost[:, None]


class Slots(nn.Module):
    """Slots that compete for tokens, updated by a recurrent cell (Locatello et al. 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = nn.Parameter(torch.randn(3, 8))
        self.before, self.norm = nn.LayerNorm(8), nn.LayerNorm(8)
        self.query, self.pair, self.cell = nn.Linear(8, 8), nn.Linear(8, 16), nn.GRUCell(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        key, value = self.pair(self.before(x)).chunk(2, -1)
        slots = self.slots.expand(len(x), -1, -1)
        for _ in range(3):
            weights = (key @ self.query(self.norm(slots)).mT / 8**0.5).softmax(-1) + 1e-8
            weights = weights / weights.sum(1, keepdim=True)
            slots = self.cell((weights.mT @ value).flatten(0, 1), slots.flatten(0, 1))
            slots = slots.view(len(x), 3, 8)
        return slots


NETWORKS = {
    Splines: (4, 6),
    Perceiver: (2, 7, 16),
    FourierMixer: (2, 8, 8),
    Deformable: (2, 3, 6, 6),
    Involution: (2, 3, 6, 6),
    Pooling: (2, 3, 6, 6),
    Switch: (2, 6, 8),
    Differential: (4, 6),
    GatedLinearAttention: (2, 6, 8),
    DeltaRule: (2, 6, 8),
    Retention: (2, 6, 8),
    TimeMix: (2, 6, 8),
    GraphAttention: (6, 8),
    Codebook: (2, 3, 8, 8),
    Slots: (2, 7, 8),
}

of_every_network = pytest.mark.parametrize("network", NETWORKS)


@pytest.mark.slow
@most_in_training
@of_every_network
def test_a_network_that_nobody_named_is_right(network: type[nn.Module], mode: Mode) -> None:
    torch.manual_seed(0)
    lowered = lower(network(), torch.randn(NETWORKS[network]), mode, loss="mse_of_outputs")
    assert_right(lowered, compute(lowered))


@pytest.mark.slow
@most_in_training
@of_every_network
def test_a_network_that_nobody_named_has_a_plan(network: type[nn.Module], mode: Mode) -> None:
    module = Loss(network()) if mode == "train" else network()
    assert_sound(built(module, mode, "bf16", *NETWORKS[network])[0])


class Loss(nn.Module):
    """A network whose outputs become scores of two classes."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x).flatten(1)[:, :2]

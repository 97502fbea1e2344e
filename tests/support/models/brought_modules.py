"""Small modules of kinds that users bring, and that no other table has: routing, layers of mixed
size, functions with gradients of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.func import jacrev, vmap
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from support.models.reported_modules import Calls

Brought = tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]]]


def of_numbers(module: Callable[[], nn.Module], *shapes: tuple[int, ...]) -> Brought:
    return module, lambda: tuple(torch.randn(shape) for shape in shapes)


def calls(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Brought:
    return of_numbers(lambda: Calls(function, shapes[0][-1]), *shapes)


class Routed(nn.Module):
    """Experts by name, of which each sample takes the best two."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 3)
        experts = {name: nn.ModuleDict({"layer": nn.Linear(6, 4)}) for name in "abc"}
        self.experts = nn.ModuleDict(experts)

    def forward(self, x: Tensor) -> Tensor:
        shares, chosen = self.gate(x).softmax(-1).topk(2, -1)
        spread = torch.zeros(x.shape[0], 3).scatter(1, chosen, shares)
        parts = (expert["layer"](x) for expert in self.experts.values())  # type: ignore[index]
        return torch.stack([*parts], -1) @ spread[..., None]


class Binned(nn.Module):
    """A table read at the bins of numbers."""

    edges: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("edges", torch.linspace(-2, 2, 15))
        self.table = nn.Embedding(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.table(torch.bucketize(x, self.edges, right=True))
        return found


class Waves(nn.Module):
    """The lowest frequencies of a signal, weighted."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.3 * torch.randn(4, 3, 2))

    def forward(self, x: Tensor) -> Tensor:
        found = torch.fft.rfft(x)
        low = found[..., :3] * torch.view_as_complex(self.weight)
        return torch.fft.irfft(torch.cat([low, 0 * found[..., 3:]], -1), n=x.shape[-1])


class Shared(nn.Module):
    """Query heads that share keys, in texts of which one has nothing to attend to."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        query = self.queries(x).unflatten(-1, (4, 2)).transpose(1, 2)
        key, value = self.keys(x).unflatten(-1, (2, 2, 2)).permute(2, 0, 3, 1, 4)
        read = torch.tensor([[True, True, False, False], [False] * 4])[:, None, None]
        return F.scaled_dot_product_attention(query, key, value, read, enable_gqa=True)


class Sign(torch.autograd.Function):
    """The sign, with the gradient of a clamp."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() < 1)


class Saved(nn.Module):
    """Layers that are computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 5), nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = checkpoint(lambda x: torch.tanh(self.first(x)), x, use_reentrant=False)
        found: Tensor = self.last(y)
        return found


class Derivatives(nn.Module):
    """Those of each output by each feature, as `torch.func` takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return vmap(jacrev(lambda row: torch.tanh(self.layer(row))))(x)


class Narrow(nn.Module):
    """Adaptive softmax of so few features that its last cluster has none."""

    def __init__(self) -> None:
        super().__init__()
        self.softmax = nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7])

    def forward(self, x: Tensor) -> Tensor:
        return self.softmax.log_prob(x)


def adds_at_equal_places(x: Tensor) -> Tensor:
    places = torch.tensor([0, 1, 1, 0]), torch.tensor([2, 2, 2, 0])
    return torch.zeros(3, 3).index_put(places, x[:, 0], accumulate=True)


def means_of_rows(x: Tensor) -> Tensor:
    rows = torch.tensor([0, 1, 1, 2])[:, None].expand(4, 5)
    return torch.zeros(3, 5).scatter_reduce(0, rows, x, "mean", include_self=False)


def spectra(x: Tensor) -> Tensor:
    window = torch.hann_window(11)
    found = torch.stft(x, 16, 6, 11, window, normalized=True, return_complex=True)
    return found.abs()


BROUGHT: dict[str, Brought] = {
    "routed": of_numbers(Routed, (5, 6)),
    "binned": of_numbers(Binned, (4, 5)),
    "waves": of_numbers(Waves, (2, 4, 10)),
    "spectra": calls(spectra, (2, 40)),
    "spectrum of one signal": calls(lambda x: spectra(x[0]), (2, 40)),
    "shared keys and nothing to read": of_numbers(Shared, (2, 4, 8)),
    "a sign that passes gradients": calls(lambda x: Sign.apply(x) * 2 + x, (4, 5)),
    "saved memory": of_numbers(Saved, (3, 5)),
    "derivatives of all outputs": of_numbers(Derivatives, (4, 5)),
    "likelihoods": calls(lambda x: Normal(x, 1.0).log_prob(x.detach() + 0.3), (4, 5)),
    "no features left": of_numbers(Narrow, (4, 8)),
    "added at equal places": calls(adds_at_equal_places, (4, 5)),
    "means of rows": calls(means_of_rows, (4, 5)),
    "choices between numbers": calls(
        lambda x: torch.where(x > 0, 1.0, -0.5) * x + torch.where(x < 0.1, x, 2), (4, 5)
    ),
    "transposed with gaps, in groups": of_numbers(
        lambda: nn.ConvTranspose2d(6, 4, 3, 2, 2, output_padding=1, groups=2, dilation=2),
        (2, 6, 5, 4),
    ),
    "a group per channel": of_numbers(lambda: nn.GroupNorm(6, 6), (3, 6, 2)),
}
"""Each can be trained."""

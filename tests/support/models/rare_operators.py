"""Small networks of layers and functions that few models have; what of them is no operator of the
vocabulary has a definition."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from support.models.many_networks import Case, Function, after_conv, same
from support.models.many_operators import (
    NETWORKS,
    TOKENS,
    Recurrent,
    function,
    of_tokens,
    resized,
    signal,
    volume,
)


class Layers(nn.Module):
    """A function of some layers and the tokens."""

    def __init__(self, run: Callable[..., Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.run, self.layers = run, nn.ModuleDict(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x, **self.layers)


def tokens(run: Callable[..., Tensor], **layers: nn.Module) -> Case:
    """A function of tokens [3, 7, 16] behind a linear layer."""
    return Case(
        lambda: nn.Sequential(nn.Linear(16, 16), Layers(run, **layers), nn.Flatten()), TOKENS
    )


def loss(run: Callable[[Tensor], Tensor]) -> Case:
    """A model that computes with a loss of its tokens."""
    return tokens(lambda x: x[:, 0] * run(x))


def image(run: Callable[[Tensor], Tensor]) -> Case:
    """A function of an image."""
    return after_conv(Function(run))


def numbers(x: Tensor, count: int = 10) -> Tensor:
    """Whole numbers that depend on the tokens."""
    return (x.detach().abs() * 5).long().clamp(0, count - 1)


def classes(x: Tensor) -> Tensor:
    """A class for each of three samples, on the device of the tokens."""
    return torch.tensor([1, 5, 2], device=x.device)


def weights(x: Tensor) -> Tensor:
    """A weight for each of 16 classes."""
    return torch.arange(1, 17).to(x)


def bags(mode: str) -> Case:
    """Embeddings of each sample's tokens, as one."""
    return tokens(lambda x, e: e(numbers(x[:, :, 0])), e=nn.EmbeddingBag(10, 4, mode=mode))


def hidden(x: Tensor) -> Tensor:
    """[3, 7]: the last two tokens, on their device."""
    return torch.tensor([[False] * 5 + [True] * 2] * 3, device=x.device)


def heads(**settings: object) -> nn.MultiheadAttention:
    return nn.MultiheadAttention(16, 4, batch_first=True, **settings)  # type: ignore[arg-type]


def grid_of(x: Tensor, reach: float, axes: int = 2) -> Tensor:
    """A grid that the image itself computes."""
    return reach * torch.tanh(x[:, :axes].movedim(1, -1))


def sampled(mode: str, padding: str, align: bool, reach: float = 1.0) -> Case:
    """An image sampled at places of its own."""
    return image(
        lambda x: functional.grid_sample(x, grid_of(x, reach), mode, padding, align_corners=align)
    )


def assigned(x: Tensor) -> Tensor:
    """Parts of the tokens written in place, one after the other."""
    y = x.clone()
    y[:, 1:3] = 0.5
    y[:, ::2, 3] = x[:, ::2, 4]
    y[:, 4] *= 2
    y[0, 1, 2:5] += x[1, 2, :3]
    return y + x


class Frozen(nn.Module):
    """Batch norm by statistics that do not change, in training too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.linspace(-1, 1, 16))
        self.register_buffer("variance", torch.linspace(0.5, 2, 16))
        self.weight, self.bias = nn.Parameter(torch.rand(16) + 0.5), nn.Parameter(torch.rand(16))

    def forward(self, x: Tensor) -> Tensor:
        return functional.batch_norm(x, self.mean, self.variance, self.weight, self.bias)


def unpooled(x: Tensor) -> Tensor:
    largest, places = functional.max_pool2d(x, 2, return_indices=True)
    return functional.max_unpool2d(largest, places, 2, output_size=list(x.shape[2:]))


RARE: dict[str, Case] = {
    # pooling
    "max pooling of volumes": volume(nn.MaxPool3d(3, 2, 1)),
    "max pooling of volumes, ceil": volume(nn.MaxPool3d(2, (2, 3, 3), ceil_mode=True)),
    "mean pooling of volumes, uneven": volume(nn.AvgPool3d(3, 2, 1, count_include_pad=False)),
    "mean pooling of volumes, ceil": volume(nn.AvgPool3d(3, 2, 1, ceil_mode=True)),
    "mean pooling of volumes, a divisor": volume(nn.AvgPool3d(2, divisor_override=3)),
    "mean pooling, ceil": after_conv(nn.AvgPool2d(2, ceil_mode=True)),
    "mean pooling, ceil, padding counts": after_conv(nn.AvgPool2d(3, 2, 1, ceil_mode=True)),
    "mean pooling, a divisor": after_conv(nn.AvgPool2d((3, 2), 2, 1, divisor_override=4)),
    "mean pooling, ceil, a divisor": after_conv(
        nn.AvgPool2d(3, 2, ceil_mode=True, divisor_override=5)
    ),
    "adaptive mean of volumes": volume(nn.AdaptiveAvgPool3d((3, 3, 2))),
    "adaptive maximum": after_conv(nn.AdaptiveMaxPool2d((3, 4))),
    "adaptive maximum of signals": signal(nn.AdaptiveMaxPool1d(6)),
    "adaptive maximum of volumes": volume(nn.AdaptiveMaxPool3d((3, 3, 2))),
    "fractional pooling": after_conv(
        nn.FractionalMaxPool2d(2, output_ratio=0.6, _random_samples=torch.rand(4, 16, 2))
    ),
    "fractional pooling of volumes": volume(
        nn.FractionalMaxPool3d(2, output_ratio=0.6, _random_samples=torch.rand(2, 4, 3))
    ),
    "unpooling": image(unpooled),
    "power pooling": after_conv(nn.Sigmoid(), nn.LPPool2d(3, 2)),
    # convolutions and resizing
    "transposed volumes": volume(
        nn.ConvTranspose3d(4, 3, 3, stride=2, padding=1, output_padding=(1, 0, 1))
    ),
    "transposed volumes, grouped": volume(
        nn.ConvTranspose3d(4, 4, (2, 3, 2), stride=(1, 2, 1), groups=2, dilation=(2, 1, 1))
    ),
    "smooth bilinear": resized("bilinear", (3, 4), antialias=True),
    "smooth bicubic": resized("bicubic", (4, 9), antialias=True),
    "trilinear": volume(nn.Upsample(size=(4, 5, 9), mode="trilinear", align_corners=True)),
    "patches and back": image(
        lambda x: functional.fold(functional.unfold(x, 3, padding=1), x.shape[2:], 3, padding=1)
    ),
    "windows of tokens": tokens(lambda x: x.unfold(1, 3, 2)),
    "sampled": sampled("bilinear", "zeros", align=False, reach=1.2),
    "sampled between corners": sampled("bilinear", "zeros", align=True, reach=1.2),
    "sampled at the border": sampled("bilinear", "border", align=True, reach=1.5),
    "sampled by reflection": sampled("bilinear", "reflection", align=False, reach=2.5),
    "sampled by cubes": sampled("bicubic", "zeros", align=True),
    "sampled nearest": sampled("nearest", "border", align=False),
    "sampled volume": volume(
        Function(lambda x: functional.grid_sample(x, grid_of(x, 1.2, 3), align_corners=True))
    ),
    # running products and the like
    "a triangular system": function(
        lambda x: torch.linalg.solve_triangular(
            0.3 * x[..., :7], x, upper=False, unitriangular=True
        )
    ),
    "an upper triangular system": function(
        lambda x: torch.linalg.solve_triangular(
            0.3 * x[..., :7] + 2 * torch.eye(7, device=x.device), x.mT, upper=True, left=False
        ).mT
    ),
    "running products": function(lambda x: (x * 0.1 + 1).cumprod(1)),
    "running maxima": function(lambda x: x.cummax(1)[0] + x.cummin(2)[0]),
    "running logarithms of sums": function(lambda x: x.logcumsumexp(1)),
    "product": tokens(lambda x: x.prod(1)),
    # functions of elements
    "inverse error function": function(lambda x: torch.erfinv(torch.tanh(x) * 0.95)),
    "complementary error function": function(lambda x: torch.erfc(2 * x)),
    "inverse waves": function(
        lambda x: torch.asin(torch.sin(x) * 0.9) - torch.acos(torch.cos(x) * 0.9)
    ),
    "inverse hyperbolic functions": function(
        lambda x: torch.asinh(3 * x) + torch.acosh(x.abs() + 1.1) + torch.atanh(torch.tanh(x) / 2)
    ),
    "hypotenuse": function(lambda x: torch.hypot(x, 2 * x + 1)),
    "logit": function(lambda x: torch.logit(torch.sigmoid(x), eps=1e-3)),
    "logit without a limit": function(
        lambda x: torch.logit(torch.sigmoid(x)) + (1 - x) + torch.sub(2, x, alpha=3)
    ),
    # distances and products
    "bilinear layer": tokens(lambda x, b: b(x, x * x), b=nn.Bilinear(16, 16, 5)),
    "distances": tokens(lambda x: torch.cdist(x, x + 1)),
    "distances, p of 1": tokens(lambda x: torch.cdist(x, x + 1, p=1.0)),
    "distances, p of 3": tokens(lambda x: torch.cdist(x, x + 1, p=3.0)),
    "largest distances": tokens(lambda x: torch.cdist(x, x + 1, p=float("inf"))),
    "distances of pairs": tokens(lambda x: functional.pdist(x[0])[None]),
    "cosine similarity": tokens(lambda x: functional.cosine_similarity(x, x.roll(1, 1), dim=-1)),
    "diagonals": tokens(lambda x: torch.einsum("bii->bi", x[:, :7, :7]) + x.diagonal(2, 1, 2)),
    "weights of norm one": of_tokens(nn.utils.parametrizations.weight_norm(nn.Linear(16, 16))),
    "weights of spectrum one": of_tokens(
        nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16))
    ),
    "frozen norm": after_conv(Frozen(), nn.ReLU(), same()),
    # indices
    "bags, summed": bags("sum"),
    "bags, mean": bags("mean"),
    "bags, largest": bags("max"),
    "bags of some": tokens(
        lambda x, e: e(numbers(x[0, :, 0]), torch.tensor([0, 3, 3, 5], device=x.device)),
        e=nn.EmbeddingBag(10, 4),
    ),
    "weighted bags with padding": tokens(
        lambda x, e: e(numbers(x[:, :, 0]), per_sample_weights=x[:, :, 1]),
        e=nn.EmbeddingBag(10, 4, mode="sum", padding_idx=0),
    ),
    "written by a mask": tokens(lambda x: torch.index_put(x, (x > 0.5,), x.new_zeros(()))),
    "parts assigned": tokens(assigned),
    "scattered by a mask": tokens(lambda x: x.masked_scatter(x > 0.5, x * 2)),
    "scattered means": tokens(
        lambda x: x.new_zeros(3, 10, 16).scatter_reduce(1, numbers(x), x, "mean")
    ),
    "scattered maxima": tokens(
        lambda x: x.new_zeros(3, 10, 16).scatter_reduce(1, numbers(x), x, "amax")
        + x[:, :1].expand(-1, 10, -1).scatter_reduce(1, numbers(x), x, "amin", include_self=False)
    ),
    "middle": tokens(lambda x: x.median(1)[0] + x.kthvalue(2, 1)[0]),
    "places in order": tokens(
        lambda x: x * torch.searchsorted(x.new_tensor([-1.0, 0.0, 1.0]), x.detach())
    ),
    "a triangle": tokens(lambda x: x[:, torch.tril_indices(7, 9, 1, device=x.device)[0]]),
    "by place in memory": tokens(
        lambda x: torch.take(x, torch.tensor([[0, 5, 7], [1, 5, 3]], device=x.device))
    ),
    # losses inside a model
    "loss with weights": loss(
        lambda x: functional.cross_entropy(x[:, 0], classes(x), weights(x), label_smoothing=0.2)
    ),
    "loss of each": tokens(
        lambda x: x[:, 0] * functional.cross_entropy(x[:, 0], classes(x), reduction="none")[:, None]
    ),
    "loss over images": loss(
        lambda x: functional.cross_entropy(
            x.view(3, 7, 4, 4), numbers(x.view(3, 7, 4, 4)[:, 0], 7), ignore_index=3
        )
    ),
    "loss of two": loss(
        lambda x: functional.binary_cross_entropy_with_logits(
            x[:, 0], x.detach()[:, 1].sigmoid(), pos_weight=weights(x)
        )
    ),
    "margins": loss(lambda x: functional.triplet_margin_loss(x[:, 0], x[:, 1], x[:, 2], swap=True)),
    # attention and recurrent layers
    "heads with padding": tokens(lambda x, a: a(x, x, x, key_padding_mask=hidden(x))[0], a=heads()),
    "heads and their weights": tokens(lambda x, a: a(x, x, x)[1], a=heads()),
    "heads with biases": tokens(
        lambda x, a: a(x, x, x)[0], a=heads(add_bias_kv=True, add_zero_attn=True)
    ),
    "projected lstm": of_tokens(
        Recurrent(nn.LSTM(16, 16, proj_size=8, bidirectional=True, batch_first=True))
    ),
    "cells": tokens(
        lambda x, lstm, gru, rnn: lstm(x[:, 0])[0] + gru(x[:, 1]) + rnn(x[:, 2]),
        lstm=nn.LSTMCell(16, 8), gru=nn.GRUCell(16, 8), rnn=nn.RNNCell(16, 8),
    ),
}  # fmt: skip

FURTHER = NETWORKS | RARE

"""Small networks of the operators that transformers, recurrent nets and U-Nets add.

As in ``many_networks.py``, each has one property that a plan can get wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from support.models.many_networks import Case, Function, Scaled, Two, after_conv, same

TOKENS = (3, 7, 16)  # samples, length, width


def of_tokens(*layers: nn.Module) -> Case:
    """The layers between two linear ones, on [3, 7, 16]."""
    first, last = nn.Linear(16, 16), nn.Linear(16, 4)
    return Case(lambda: nn.Sequential(first, *layers, last, nn.Flatten()), TOKENS)


def function(run: Callable[[Tensor], Tensor]) -> Case:
    """A function of tokens that keeps the width."""
    return of_tokens(Function(run))


def signal(*layers: nn.Module, size: int = 20) -> Case:
    """The layers after a convolution of signals [4, 3, size]."""
    first = nn.Conv1d(3, 8, 3, padding=1)
    return Case(lambda: nn.Sequential(first, *layers, nn.Flatten()), (4, 3, size))


def volume(*layers: nn.Module) -> Case:
    """The layers after a convolution of volumes [2, 2, 6, 7, 8]."""
    first = nn.Conv3d(2, 4, 3, padding=1)
    return Case(lambda: nn.Sequential(first, *layers, nn.Flatten()), (2, 2, 6, 7, 8))


def resized(mode: str, size: tuple[int, int] | None = None, **settings: object) -> Case:
    """An image resized to a size, or to twice its own."""
    factor = None if size else 2

    def run(x: Tensor) -> Tensor:
        return functional.interpolate(x, size=size, scale_factor=factor, mode=mode, **settings)  # type: ignore[arg-type]

    return after_conv(Function(run), same(), size=(5, 6))


class Attention(nn.Module):
    """Heads of attention on [N, L, 16]; keys and values may be fewer."""

    def __init__(
        self, heads: int = 4, groups: int = 4, causal: bool = False, mask: str = ""
    ) -> None:
        super().__init__()
        self.heads, self.groups, self.causal, self.mask = heads, groups, causal, mask
        width = 16 // heads
        self.queries, self.keys = nn.Linear(16, 16), nn.Linear(16, groups * width)
        self.values = nn.Linear(16, groups * width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, _ = x.shape

        def split(y: Tensor, heads: int) -> Tensor:
            return y.view(n, length, heads, -1).transpose(1, 2)

        mask = None
        if self.mask == "truths":
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril(1)
        elif self.mask == "numbers":
            mask = torch.arange(length, device=x.device).float() * -0.1
            mask = mask.expand(length, length)
        q = split(self.queries(x), self.heads)
        k, v = split(self.keys(x), self.groups), split(self.values(x), self.groups)
        y = functional.scaled_dot_product_attention(
            q, k, v, mask, is_causal=self.causal, enable_gqa=self.groups != self.heads
        )
        return y.transpose(1, 2).reshape(n, length, 16)


class Rotary(nn.Module):
    """Rotary embeddings, with tables from positions."""

    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        steps = torch.arange(half, device=x.device) / half
        places = torch.arange(x.shape[1], device=x.device)
        angles = places[:, None] * torch.exp(-math.log(100.0) * steps)
        cos, sin = (torch.cat([f(angles)] * 2, -1) for f in (torch.cos, torch.sin))
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * cos + turned * sin


class Swish(nn.Module):
    """SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Recurrent(nn.Module):
    """The outputs of a recurrent layer on [N, L, 16]."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class Windows(nn.Module):
    """Attention's windows: an image cut into windows of 3x3 pixels, shifted, and put together."""

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        x = torch.roll(x, (-1, -2), (2, 3))
        x = x.view(n, c, h // 3, 3, w // 3, 3).permute(0, 2, 4, 3, 5, 1).reshape(-1, 9, c)
        x = torch.softmax(x, 1)
        x = x.view(n, h // 3, w // 3, 3, 3, c).permute(0, 5, 1, 3, 2, 4).reshape(n, c, h, w)
        return torch.roll(x, (1, 2), (2, 3))


NETWORKS: dict[str, Case] = {
    # norms
    "layer norm": of_tokens(nn.LayerNorm(16)),
    "layer norm without affine": of_tokens(nn.LayerNorm(16, elementwise_affine=False)),
    "layer norm without bias": of_tokens(nn.LayerNorm(16, bias=False)),
    "layer norm of two axes": of_tokens(nn.LayerNorm((7, 16))),
    "layer norm of channels": after_conv(
        Function(lambda x: x.permute(0, 2, 3, 1)), nn.LayerNorm(16),
        Function(lambda x: x.permute(0, 3, 1, 2)), same(),
    ),
    "rms norm": of_tokens(nn.RMSNorm(16, eps=1e-5)),
    "group norm": after_conv(nn.GroupNorm(4, 16), nn.ReLU(), same()),
    "instance norm": after_conv(nn.InstanceNorm2d(16, affine=True), same()),
    "batch norm of signals": signal(nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 4, 1)),
    "batch norm of volumes": volume(nn.BatchNorm3d(4), nn.ReLU(), nn.Conv3d(4, 2, 1)),
    "group norm of signals": signal(nn.GroupNorm(2, 8)),
    "local response norm": after_conv(nn.LocalResponseNorm(5), same()),
    # attention
    "attention": of_tokens(Attention()),
    "attention, causal": of_tokens(Attention(causal=True)),
    "attention, masked by truths": of_tokens(Attention(mask="truths")),
    "attention, masked by numbers": of_tokens(Attention(mask="numbers")),
    "attention, grouped": of_tokens(Attention(groups=2)),
    "encoder layer": of_tokens(
        nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, activation="gelu")
    ),
    "encoder layer, norm first": of_tokens(
        nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
    ),
    "rotary": of_tokens(Rotary()),
    "swiglu": of_tokens(Swish()),
    "windows": after_conv(Windows(), same(), size=(6, 9)),
    "einsum": function(lambda x: torch.einsum("nld,nkd->nlk", x, x).softmax(-1) @ x),
    "product of four axes": function(
        lambda x: (x.view(3, 7, 4, 4).transpose(1, 2) @ x.view(3, 4, 4, 7)).reshape(3, 4, 49)
        [..., :28].reshape(3, 7, 16)
    ),
    # functions
    "softmax over the middle": function(lambda x: torch.softmax(x, 1)),
    "log softmax over samples": function(lambda x: torch.log_softmax(x, 0)),
    "mish": after_conv(nn.Mish(), same()),
    "softplus": after_conv(nn.Softplus(), same()),
    "prelu": after_conv(nn.PReLU(16), same()),
    "selu": after_conv(nn.SELU(), same()),
    "hard functions": after_conv(nn.Hardtanh(), nn.Hardswish(), nn.Hardsigmoid()),
    "log sigmoid": after_conv(nn.LogSigmoid()),
    "glu": after_conv(nn.GLU(1), nn.Conv2d(8, 4, 1)),
    "powers": function(lambda x: (x.abs() + 1) ** 1.5 + x**2 - (x * x + 1).rsqrt()),
    "exponentials": function(lambda x: torch.exp(-x.abs()) + torch.log1p(x * x)),
    "waves": function(lambda x: torch.sin(x) * torch.cos(2 * x)),
    "choice": function(lambda x: torch.where(x > 0, x, 0.1 * x)),
    "masked": function(
        lambda x: x.masked_fill(torch.ones(7, 1, device=x.device).cumsum(0) > 4, -2.0)
    ),
    "clamped": function(lambda x: x.clamp(-0.5, 1.0)),
    "triangles": function(lambda x: torch.tril(x, 2) + torch.triu(x, 1)),
    "maximum": after_conv(Two(torch.maximum, same(), nn.Identity())),
    "number minus": function(lambda x: 1 - x),
    "difference of a smaller": after_conv(Scaled((16, 1, 1), lambda x, w: w - x)),
    "outer sums": Case(
        lambda: nn.Sequential(
            nn.Linear(16, 16),
            Function(lambda x: torch.tanh(x[:, :, None, :8] + x[:, None, :, 8:]).sum(2)),
            nn.Flatten(),
        ),
        TOKENS,
    ),
    # reductions
    "largest": function(lambda x: x - x.amax(1, keepdim=True)),
    "largest of an axis": function(lambda x: x * x.max(-1, keepdim=True)[0]),
    "variance": function(lambda x: x / (x.var(-1, keepdim=True) + 1)),
    "standard deviation": function(lambda x: x / (x.std((0, 1), keepdim=True) + 1)),
    "norm": function(lambda x: functional.normalize(x, dim=-1)),
    "sum over apart axes": after_conv(Function(lambda x: x.sum((1, 3)))),
    "mean over samples": function(lambda x: x - x.mean(0)),
    "running sums": function(lambda x: x.cumsum(1)),
    # shapes
    "parts": function(lambda x: torch.cat(x.chunk(4, -1)[::-1], -1)),
    "uneven parts": function(lambda x: torch.cat(x.split([5, 11], -1)[::-1], -1)),
    "stacked": function(lambda x: torch.stack([x, -x], 1).sum(1)),
    "every second": function(lambda x: torch.cat([x[..., ::2], x[..., 1::2]], -1)),
    "one of them": function(lambda x: x + x[:, 0:1] + x[:, -1, None]),
    "reversed": function(lambda x: x.flip(1, 2)),
    "rolled": function(lambda x: x.roll(3, 1)),
    "repeated": function(lambda x: x.repeat(1, 2, 1)[:, 3:10]),
    "repeated in turn": function(lambda x: x.repeat_interleave(2, 1)[:, :7]),
    "six axes": after_conv(
        Function(lambda x: x.view(4, 2, 8, 3, 3, 11).permute(0, 5, 3, 1, 4, 2)), nn.Tanh()
    ),
    "pixel shuffle": after_conv(nn.PixelShuffle(2), nn.Conv2d(4, 4, 3)),
    "reflection": after_conv(nn.ReflectionPad2d((1, 2, 0, 3)), same()),
    "replication": after_conv(nn.ReplicationPad2d(2), same()),
    "circular": after_conv(nn.CircularPad2d(1), same()),
    # indices
    "rows": function(
        lambda x: x + x[:, torch.tensor([3, 0, 0, 6, 1, 2, 2], device=x.device)]
    ),
    "gathered": function(lambda x: x.gather(1, (x.detach() > 9).long() + 2)),
    "index select": function(
        lambda x: x.index_select(2, torch.arange(15, -1, -1, device=x.device))
    ),
    # convolutions
    "signals": signal(nn.ReLU(), nn.Conv1d(8, 6, 5, stride=2, padding=2, groups=2)),
    "volumes": volume(nn.ReLU(), nn.Conv3d(4, 3, (3, 2, 3), stride=(2, 1, 1), padding=(1, 0, 1))),
    "transposed": after_conv(nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1), nn.ReLU()),
    "transposed, output padding": after_conv(
        nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1, bias=False)
    ),
    "transposed, grouped": after_conv(nn.ConvTranspose2d(16, 8, 2, stride=2, groups=4)),
    "transposed first": Case(
        lambda: nn.Sequential(nn.ConvTranspose2d(12, 8, 3, bias=False), nn.ReLU(), nn.Flatten()),
        (3, 12, 1, 1),
    ),
    "transposed signals": signal(nn.ConvTranspose1d(8, 4, 3, stride=2)),
    # resizing
    "bilinear": resized("bilinear"),
    "bilinear between corners": resized("bilinear", (8, 11), align_corners=True),
    "bilinear to fewer": resized("bilinear", (3, 4)),
    "nearest": resized("nearest"),
    "nearest, uneven": resized("nearest", (7, 4)),
    "bicubic": resized("bicubic", (9, 8)),
    "rows that would begin anywhere": Case(
        lambda: nn.Sequential(nn.Linear(16, 1029)), (3, 16)
    ),
    "patches": Case(
        lambda: nn.Sequential(nn.Conv2d(3, 8, 8, stride=8), nn.ReLU(), nn.Flatten()), (2, 3, 16, 24)
    ),
    "linear of signals": signal(nn.Upsample(scale_factor=2, mode="linear")),
    "adaptive pooling of signals": signal(nn.AdaptiveAvgPool1d(5)),
    "pooling of signals": signal(nn.MaxPool1d(2), nn.AvgPool1d(3, 1)),
    # recurrent
    "lstm": of_tokens(Recurrent(nn.LSTM(16, 16, batch_first=True))),
    "lstm of two layers, both ways": of_tokens(
        Recurrent(nn.LSTM(16, 8, 2, batch_first=True, bidirectional=True))
    ),
    "gru": of_tokens(Recurrent(nn.GRU(16, 16, batch_first=True))),
    "rnn": of_tokens(Recurrent(nn.RNN(16, 16, batch_first=True))),
}  # fmt: skip

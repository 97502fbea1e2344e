"""Models that are right and whose results are mostly rounding, or amplify it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Forward = Callable[[nn.Module, Tensor], Tensor]


class OneLayer(nn.Module):
    """A layer, and a function of it and of the input."""

    def __init__(self, layer: nn.Module, forward: Forward) -> None:
        super().__init__()
        self.layer, self.function = layer, forward

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer, x)


def _linear(
    forward: Callable[[Tensor], Tensor], width: int = 16, *, bias: bool = True
) -> nn.Module:
    torch.manual_seed(0)
    return OneLayer(nn.Linear(16, width, bias=bias), lambda layer, x: forward(layer(x)))


def _images(forward: Callable[[Tensor], Tensor], offset: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return OneLayer(nn.Conv2d(3, 8, 3), lambda layer, x: forward(layer(x + offset)))


def _deep(depth: int, act: type[nn.Module], std: float) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(16, 16) for _ in range(depth)]
    for layer in layers:
        nn.init.normal_(layer.weight, std=std)
    return nn.Sequential(*(part for layer in layers for part in (layer, act())))


def _normed(depth: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(part for _ in range(depth) for part in (nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU()))
    )


def _zero_vectors(y: Tensor) -> Tensor:
    return F.normalize(y - (y + 1) + 1, dim=-1)


def _one_pass_variance(y: Tensor) -> Tensor:
    y = y + 1000
    return (y * y).mean(-1) - y.mean(-1) ** 2


def _gram(y: Tensor) -> Tensor:
    return torch.linalg.inv(y.T @ y + 1e-4 * torch.eye(y.shape[1], dtype=y.dtype))


def _log_of_rest(y: Tensor) -> Tensor:
    return torch.log1p(-torch.softmax(20 * y, -1) + 1e-6)


def _iterated(y: Tensor) -> Tensor:
    y = torch.sigmoid(y)
    for _ in range(15):
        y = 3.9 * y * (1 - y)
    return y


FLAT: dict[str, Callable[[], nn.Module]] = {
    "softmax of large logits": lambda: _linear(lambda y: torch.softmax(1e4 * y, -1)),
    "softmax of logits": lambda: _linear(lambda y: torch.softmax(100 * y, -1)),
    "log softmax of large logits": lambda: _linear(lambda y: torch.log_softmax(1e4 * y, -1)),
    "log of what softmax leaves": lambda: _linear(_log_of_rest),
    "an offset that cancels": lambda: _linear(lambda y: (y + 1e4) - 1e4),
    "sums that cancel": lambda: _linear(lambda y: y.sum(-1) - y.flip(-1).sum(-1), 1000),
    "sorted terms that cancel": lambda: _linear(
        lambda y: (s := y.sort(-1).values).sub(s.mean(-1, keepdim=True)).sum(-1), 4000
    ),
    "sums of differences": lambda: _linear(lambda y: y.cumsum(-1).diff(dim=-1).sum(-1), 4000),
    "variance of a large offset": lambda: _linear(lambda y: (y + 1e4).var(-1), 64),
    "variance in one pass": lambda: _linear(_one_pass_variance, 64),
    "layer norm of a large offset": lambda: _linear(
        lambda y: F.layer_norm(y + 1e4, y.shape[-1:]), 64
    ),
    "layer norm and its mean": lambda: _linear(
        lambda y: F.layer_norm(y + 100, y.shape[-1:]).mean(-1), 64
    ),
    "deep, growing": lambda: _deep(12, nn.ReLU, 0.5),
    "deep, chaotic": lambda: _deep(30, nn.Tanh, 0.6),
    "deep, fading": lambda: _deep(20, nn.Sigmoid, 0.2),
    "batch norm over two rows": lambda: _normed(1),
    "batch norms over two rows": lambda: _normed(6),
    "many batch norms over two rows": lambda: _normed(24),
    "direction of near-zero vectors": lambda: _linear(_zero_vectors),
    "lengths of tiny vectors": lambda: _linear(lambda y: (1e-20 * y).norm(dim=-1), bias=False),
    "sine of large arguments": lambda: _linear(lambda y: torch.sin(1e4 * y)),
    "sine of larger arguments": lambda: _linear(lambda y: torch.sin(1e6 * y)),
    "gelu of negative arguments": lambda: _linear(lambda y: F.gelu(0.1 * y - 6)),
    "distances of near points": lambda: _linear(
        lambda y: torch.cdist((z := y.reshape(-1, 16)), z + 1e-4), 512
    ),
    "inverse of a singular matrix": lambda: _linear(_gram, 16),
    "log of sums of large numbers": lambda: _linear(
        lambda y: torch.logsumexp(1e3 * y, -1) - (1e3 * y).max(-1).values
    ),
    "a chaotic map": lambda: _linear(_iterated),
    "difference of square roots": lambda: _linear(
        lambda y: torch.sqrt(y * y + 1e4) - 100.0, bias=False
    ),
    "a pole": lambda: _linear(lambda y: 1 / torch.tan(torch.pi * (1e3 * y).round() + 1e-3)),
}
"""For inputs of 16 features."""

IMAGES: dict[str, Callable[[], nn.Module]] = {
    "instance norm and mean": lambda: _images(lambda y: F.instance_norm(y).mean((2, 3))),
    "instance norm of an offset and mean": lambda: _images(
        lambda y: F.instance_norm(y).mean((1, 2, 3)), 100.0
    ),
    "group norm and mean": lambda: _images(lambda y: F.group_norm(y, 2).mean((1, 2, 3))),
    "batch statistics and mean": lambda: _images(
        lambda y: F.batch_norm(y, None, None, training=True).mean((0, 2, 3))
    ),
    "centred by hand and summed": lambda: _images(
        lambda y: (y - y.mean((2, 3), keepdim=True)).sum((2, 3))
    ),
}
"""For images of three channels."""

"""Networks that draw random numbers in their forward pass, as users write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import dropout as dropout_by_another_name
from torch.utils.checkpoint import checkpoint


def stochastic_depth(x: Tensor, p: float, training: bool) -> Tensor:
    """torchvision's, of rows."""
    if not training or p == 0.0:
        return x
    survival_rate = 1.0 - p
    size = [x.shape[0]] + [1] * (x.ndim - 1)
    noise = torch.empty(size, dtype=x.dtype, device=x.device)
    noise = noise.bernoulli_(survival_rate)
    if survival_rate > 0.0:
        noise.div_(survival_rate)
    return x * noise


class Drawing(nn.Module):
    """Two linear layers with `between` between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 4)

    def between(self, x: Tensor) -> Tensor:
        """[batch, 32] -> the same shape."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 16] -> [batch, 4]."""
        return self.last(self.between(torch.relu(self.first(x))))


class DropoutCall(Drawing):
    def between(self, x: Tensor) -> Tensor:
        return functional.dropout(x, 0.5, training=self.training)


class DropoutAlways(Drawing):
    def between(self, x: Tensor) -> Tensor:
        return functional.dropout(x)


class DropoutInAttention(Drawing):
    def between(self, x: Tensor) -> Tensor:
        heads = x.reshape(len(x), 2, 4, 4)
        chance = 0.3 if self.training else 0.0
        return functional.scaled_dot_product_attention(
            heads, heads, heads, dropout_p=chance
        ).reshape(x.shape)


class Depth(Drawing):
    def between(self, x: Tensor) -> Tensor:
        return x + stochastic_depth(x.sin(), 0.3, self.training)


class Noise(Drawing):
    def between(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x) * 0.1


class Threshold(Drawing):
    def between(self, x: Tensor) -> Tensor:
        return x * (torch.rand(len(x), 1) < 0.7)


class Bernoulli(Drawing):
    def between(self, x: Tensor) -> Tensor:
        return x * torch.bernoulli(torch.sigmoid(x))


class Gumbel(Drawing):
    def between(self, x: Tensor) -> Tensor:
        return functional.gumbel_softmax(x, dim=1)


class Permutation(Drawing):
    def between(self, x: Tensor) -> Tensor:
        return x[:, torch.randperm(32)]


class Fractional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 8, 3), nn.Linear(8, 4)
        self.pool = nn.FractionalMaxPool2d(2, output_size=(1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.pool(self.first(x.reshape(-1, 1, 4, 4)).cos()).flatten(1))


class Mixed(nn.Module):
    """Layers that drop, a call that does, and draws of three kinds, with batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(16, 32), nn.BatchNorm1d(32)
        self.drop, self.last = nn.Dropout(0.2), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.norm(self.first(x)))
        x = functional.dropout(x, 0.1, self.training) + torch.randn(())
        x = stochastic_depth(x, 0.2, True)
        return self.last(x + torch.randint(0, 2, (32,)))


# ---------------------------------------------------------------- refused


class RandomSlope(Drawing):
    def between(self, x: Tensor) -> Tensor:
        return functional.rrelu(x - 0.3, training=True)


class AnotherName(Drawing):
    def between(self, x: Tensor) -> Tensor:
        return dropout_by_another_name(x)


class ComputedAgain(Drawing):
    def between(self, x: Tensor) -> Tensor:
        def noisy(y: Tensor) -> Tensor:
            return torch.tanh(y * torch.rand_like(y))

        return checkpoint(noisy, x, use_reentrant=False)  # type: ignore[no-any-return]


class OtherShapes(Drawing):
    """The number of draws depends on the batch."""

    def between(self, x: Tensor) -> Tensor:
        return x + torch.rand(int(x.abs().sum() * 1000) % 997 + 1).mean()

"""Models that are right in float64 and wrong in every precision that a level works in."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

FEATURES, HIDDEN, OUTPUTS = 16, 32, 125  # eight samples: a thousand outputs

Bend = Callable[[Tensor], Tensor]


def _times(factor: float) -> Bend:
    return lambda y: y * factor


def _gradient_times(factor: float) -> Bend:
    return lambda y: y.detach() + (y - y.detach()) * factor


def _element(value: Callable[[Tensor], Tensor]) -> Bend:
    """One element of one sample is another number."""

    def bend(y: Tensor) -> Tensor:
        place = torch.zeros_like(y)
        place[3, 7] = 1
        return torch.where(place > 0, value(y), y)

    return bend


def _channel(value: Callable[[Tensor], Tensor]) -> Bend:
    def bend(y: Tensor) -> Tensor:
        place = torch.arange(y.shape[1], device=y.device) == 7
        return torch.where(place.view(-1, *[1] * (y.dim() - 2)), value(y), y)

    return bend


FAULTS: dict[str, Bend] = {
    "0.1% too large": _times(1.001),
    "0.1% too small": _times(0.999),
    "1% too large": _times(1.01),
    "10% too large": _times(1.1),
    "10% too small": _times(0.9),
    "twice": _times(2),
    "the other sign": _times(-1),
    "zero": _times(0),
    "a million times": _times(1e6),
    "shifted": lambda y: y + 0.01,
    "a fast sine": lambda y: y + 0.5 * torch.sin(1000 * y),
    "noise": lambda y: y * (1 + 0.01 * torch.sin(12345 * y)),
    "nan": _times(math.nan),
    "infinite": lambda y: y / (y - y),
    "one nan": _element(lambda y: y * math.nan),
    "one element twice": _element(lambda y: 2 * y),
    "one element zero": _element(torch.zeros_like),
    "one element huge": _element(lambda y: y + 1e6),
    "one channel negative": _channel(torch.neg),
    "one channel zero": _channel(torch.zeros_like),
    "one channel of its neighbour": _channel(lambda y: y.roll(1, 1)),
    "channels rolled": lambda y: y.roll(1, 1),
    "samples rolled": lambda y: y.roll(1, 0),
    "clipped": lambda y: y.clamp(-0.3, 0.3),
    "eight bits": lambda y: (y * 128).round() / 128,
    "absolute": torch.abs,
    "centred": lambda y: y - y.mean(1, keepdim=True),
    "sine for itself": torch.sin,
    "a sample of the batch missing": lambda y: torch.cat([y[:-1], torch.zeros_like(y[-1:])]),
    "first half for both": lambda y: torch.cat([y[:, :62], y[:, :63]], 1),
}
"""By name, what happens to the output of the network."""

OF_EACH_KIND = (
    "0.1% too large", "10% too small", "the other sign", "nan", "one element huge",
    "one channel zero", "samples rolled", "a sample of the batch missing",
)  # fmt: skip
"""Factors, a sign, no number; and faults of an element, of a channel, and of samples."""

GRADIENT_FAULTS: dict[str, Bend] = {
    "gradients 0.1% too large": _gradient_times(1.001),
    "gradients 1.5 times": _gradient_times(1.5),
    "gradients of the other sign": _gradient_times(-1),
    "no gradients": _gradient_times(0),
    "gradients of one channel missing": lambda y: torch.where(
        torch.arange(y.shape[1], device=y.device) == 7, y.detach(), y
    ),
}
"""By name, faults that no output shows."""

RIGHT = "nothing"
"""Beside the faults: the same network without one."""

COARSE = [
    name
    for name in FAULTS
    if not name.startswith(("0.1%", "1%", "noise", "shifted", "eight bits", "sine for"))
    and name not in ("one element twice", "one element zero")
]
"""Faults of the output that are larger than bf16's rounding."""


class WrongEager(nn.Module):
    """A network with one fault, which float64 does not have."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, OUTPUTS)
        self.fault = fault

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(torch.relu(self.first(x)))
        if x.dtype is torch.float64 or self.fault == RIGHT:
            return y
        bent: Tensor = (FAULTS | GRADIENT_FAULTS)[self.fault](y)
        return bent


class WrongImages(nn.Module):
    """Convolutions with batch norm, of which one channel has a wrong sign outside float64."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.conv2, self.fc = nn.Conv2d(8, 8, 3), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x))
        if x.dtype is not torch.float64:
            y = _channel(torch.neg)(y)
        scores: Tensor = self.fc(torch.relu(self.conv2(torch.relu(y))).mean((2, 3)))
        return scores

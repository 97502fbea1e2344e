"""What the tests of trainings train: a small network with batch norm, on the embedded digits."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from golow.programs.training.data import TrainingData, open_data
from support.places import WORKERS

HERE = Path(__file__)
NORMED, PLAIN, TIED = f"{HERE}:normed", f"{HERE}:plain", f"{HERE}:tied"


def normed() -> nn.Module:
    """[batch, 1, 8, 8] -> [batch, 10]: all that the worker of ``workers/softmax.py`` can do."""
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))


def plain() -> nn.Module:
    """The same without batch norm."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


class Tied(nn.Module):
    """Two layers with one weight, and a parameter that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = (nn.Linear(64, n) for n in (64, 64, 10))
        self.second.weight = self.first.weight
        self.idle = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.second(self.first(x.flatten(1)).relu()).relu()
        scores: Tensor = self.last(hidden)
        return scores


def tied() -> nn.Module:
    """[batch, 1, 8, 8] -> [batch, 10]."""
    return Tied()


def digits(cache: Path) -> TrainingData:
    """The embedded digits as they are."""
    return open_data(
        "digits",
        "",
        root=None,
        resolution=None,
        sequence=None,
        voc_label="first",
        cache=cache,
        progress=lambda what, done, total: None,
    )


def softmax_worker(*options: str) -> list[str]:
    """The worker in NumPy, with these options."""
    return [sys.executable, str(WORKERS / "softmax.py"), *options]

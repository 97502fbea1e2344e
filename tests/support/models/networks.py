"""Small networks of the tests, named as users name theirs:
``tests/support/models/networks.py:Network``.

Annotations are not postponed here: `torch.jit.script` reads them, and takes no text.
"""

import time
from typing import Any

import torch
from torch import Tensor, nn

INPUT = (3, 16, 16)  # one sample of Network
FEATURES = 16  # one sample of Linear


@torch.jit.ignore
def say_that_it_works() -> None:
    """Print at once, also from a script: a script's own `print` cannot flush."""
    print("a network is at work", flush=True)


class Network(nn.Module):
    """Convolutions, batch norm and a linear layer, well conditioned; it prints while it works."""

    def __init__(self) -> None:
        super().__init__()
        print("a network is being made", flush=True)
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(32)
        self.fc = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 3, height, width] -> [batch, 10]"""
        if not torch.compiler.is_compiling():
            say_that_it_works()
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


class Biased(Network):
    """Biases before batch norm and of an attention's keys: their gradients are exactly zero."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.queries, self.keys = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 3, height, width] -> [batch, 10]"""
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x))).flatten(2).transpose(1, 2)
        weights = (self.queries(x) @ self.keys(x).transpose(1, 2)).softmax(2)
        return self.fc((weights @ x).mean(1))


class Linear(nn.Module):
    """All that the tiny worker in C can do."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(FEATURES, 8)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 16] -> [batch, 8]"""
        return self.fc(x)


class Pause(nn.Module):
    """A layer of known cost: it sleeps so long, forwards and backwards."""

    SECONDS = 0.02

    def forward(self, x: Tensor) -> Tensor:
        """What it is given."""
        return _Sleep.apply(x)


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        time.sleep(Pause.SECONDS)
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        time.sleep(Pause.SECONDS)
        return gradient


class Slow(nn.Module):
    """One layer of known cost among cheap ones, deep enough to have a path."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 8)
        self.middle = nn.Sequential(nn.ReLU(inplace=True), Pause(), nn.ReLU(inplace=True))
        self.last = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 16] -> [batch, 4]"""
        return self.last(self.middle(self.first(x)))

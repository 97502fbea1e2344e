"""The network of the quickstart's listings."""

import torch
from torch import Tensor, nn


class Gate(nn.Module):
    """Has an operation that only some levels have."""

    def forward(self, x: Tensor) -> Tensor:
        return x + x * torch.lgamma(x.square() + 1)


class Net(nn.Module):
    """[batch, 3, h, w] -> [batch, 4]"""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.gates = nn.Sequential(Gate(), Gate())
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gates(torch.relu(self.conv(x))).mean((2, 3)))

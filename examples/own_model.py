"""Compare a model of your own, from a file and by its name.

    golow compare examples/own_model.py:Net --input 3x32x32 --levels eager,torchscript
    python examples/own_model.py

Every worker finds the class by that name and builds it without arguments. If your model needs
arguments, name a function that supplies them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import golow


class Block(nn.Module):
    """Two 3x3 convolutions and a residual. [batch, width, h, w] -> the same shape."""

    # `--init zero_gamma` uses this name to find the last batch norm of the block.
    zero_gamma_target = "bn2"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(x + self.bn2(self.conv2(hidden)))


class Net(nn.Module):
    """A small residual network. [batch, 3, h, w] -> logits [batch, classes]."""

    def __init__(self, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        features = self.blocks(self.stem(images))
        return self.head(features.mean((2, 3)))


def main() -> None:
    """Compare it from Python. The command line above does the same."""
    result = golow.compare(
        f"{__file__}:Net", input_shape=(3, 32, 32), levels=["eager", "torchscript"], time_limit=3
    )
    result.table()


if __name__ == "__main__":
    main()

"""DenseNet: Huang, Liu, van der Maaten & Weinberger, "Densely connected convolutional networks"
(2017), arXiv:1608.06993. State-dict names as in torchvision.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.models import check_arguments

GROWTH = 32  # channels that each layer adds
BOTTLENECK = 4  # a layer's 1x1 convolution gives this many times as many


class DenseLayer(nn.Module):
    """Norm, ReLU and convolution, 1x1 and then 3x3.

    [batch, channels, height, width] -> [batch, GROWTH, height, width].
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = BOTTLENECK * GROWTH
        self.norm1 = nn.BatchNorm2d(channels)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(channels, hidden, kernel_size=1, bias=False)
        self.norm2 = nn.BatchNorm2d(hidden)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(hidden, GROWTH, kernel_size=3, padding=1, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """The channels that this layer adds."""
        hidden = self.conv1(self.relu1(self.norm1(features)))
        added: Tensor = self.conv2(self.relu2(self.norm2(hidden)))
        return added


class DenseBlock(nn.ModuleDict):
    """Layers that each read the block's input and all that the layers before them added.

    [batch, channels, height, width] -> [batch, channels + layers * GROWTH, height, width].
    """

    def __init__(self, layers: int, channels: int) -> None:
        super().__init__(
            {
                f"denselayer{index + 1}": DenseLayer(channels + index * GROWTH)
                for index in range(layers)
            }
        )

    def forward(self, features: Tensor) -> Tensor:
        """The input's channels, then each layer's."""
        found = [features]
        for layer in self.values():
            found.append(layer(torch.cat(found, dim=1)))
        return torch.cat(found, dim=1)


def _transition(channels: int) -> nn.Sequential:
    """Half as many channels, and half the height and width."""
    layers: list[tuple[str, nn.Module]] = [
        ("norm", nn.BatchNorm2d(channels)),
        ("relu", nn.ReLU(inplace=True)),
        ("conv", nn.Conv2d(channels, channels // 2, kernel_size=1, bias=False)),
        ("pool", nn.AvgPool2d(kernel_size=2, stride=2)),
    ]
    return nn.Sequential(OrderedDict(layers))


class DenseNet(nn.Module):
    """A 7x7 convolution and dense blocks with transitions in between, averaged and classified.

    Input: [batch, in_channels, height, width]. Output: logits [batch, classes].
    """

    def __init__(self, layers: tuple[int, ...], in_channels: int, classes: int) -> None:
        super().__init__()
        channels = 2 * GROWTH
        stem = nn.Conv2d(in_channels, channels, kernel_size=7, stride=2, padding=3, bias=False)
        named: list[tuple[str, nn.Module]] = [
            ("conv0", stem),
            ("norm0", nn.BatchNorm2d(channels)),
            ("relu0", nn.ReLU(inplace=True)),
            ("pool0", nn.MaxPool2d(kernel_size=3, stride=2, padding=1)),
        ]
        for index, count in enumerate(layers, start=1):
            named.append((f"denseblock{index}", DenseBlock(count, channels)))
            channels += count * GROWTH
            if index < len(layers):
                named.append((f"transition{index}", _transition(channels)))
                channels //= 2
        named.append((f"norm{len(layers) + 1}", nn.BatchNorm2d(channels)))
        self.features = nn.Sequential(OrderedDict(named))
        self.classifier = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, in_channels, height, width] -> logits [batch, classes]."""
        features = functional.relu(self.features(images), inplace=True)
        pooled = functional.adaptive_avg_pool2d(features, (1, 1))
        logits: Tensor = self.classifier(torch.flatten(pooled, 1))
        return logits


def densenet121(*, in_channels: int = 3, classes: int = 1000, resolution: int = 224) -> DenseNet:
    """DenseNet-BC of 121 layers; its weights do not depend on the resolution.

    Raises:
        ValueError: an argument is too small.
    """
    check_arguments("densenet121", in_channels=in_channels, classes=classes, resolution=resolution)
    return DenseNet((6, 12, 24, 16), in_channels, classes)

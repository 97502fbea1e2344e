"""U-Net: Ronneberger, Fischer & Brox, "U-Net: convolutional networks for biomedical image
segmentation" (2015), arXiv:1505.04597.

The layout of the paper's figure 1, with two changes that became usual: convolutions are padded, so
that the output is as large as the image, and a batch norm follows each 3x3 convolution. With three
channels and two classes this has 31,037,698 parameters, like ``UNet(n_channels=3, n_classes=2)`` of
https://github.com/milesial/Pytorch-UNet, whose published weights have other names.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from golow.models import check_arguments

_WIDTHS = (64, 128, 256, 512, 1024)  # channels on the way down


def _two_convolutions(in_channels: int, out_channels: int) -> nn.Sequential:
    """3x3 convolution, batch norm and ReLU, twice; height and width stay."""
    layers: list[nn.Module] = []
    for channels in (in_channels, out_channels):
        layers += [
            nn.Conv2d(channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers)


class Up(nn.Module):
    """Twice the height and width and half the channels, then joined with what the way down saw.

    ([batch, channels, height, width], [batch, channels / 2, 2 height, 2 width]) -> the latter.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, channels // 2, kernel_size=2, stride=2)
        self.convolutions = _two_convolutions(channels, channels // 2)

    def forward(self, features: Tensor, seen: Tensor) -> Tensor:
        """Features at the resolution of what was seen."""
        joined: Tensor = self.convolutions(torch.cat((seen, self.up(features)), dim=1))
        return joined


class UNet(nn.Module):
    """Four halvings of the image and four doublings, each joined with its counterpart.

    Input: [batch, in_channels, height, width], both multiples of 16. Output: logits for each pixel
    [batch, classes, height, width].
    """

    def __init__(self, in_channels: int, classes: int, widths: tuple[int, ...] = _WIDTHS) -> None:
        super().__init__()
        self.first = _two_convolutions(in_channels, widths[0])
        self.down = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), _two_convolutions(width, 2 * width))
            for width in widths[:-1]
        )
        self.up = nn.ModuleList(Up(width) for width in reversed(widths[1:]))
        self.last = nn.Conv2d(widths[0], classes, kernel_size=1)

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, in_channels, height, width] -> logits [batch, classes, height, width]."""
        seen = [self.first(images)]
        for down in self.down:
            seen.append(down(seen[-1]))
        features = seen.pop()
        for up in self.up:
            features = up(features, seen.pop())
        logits: Tensor = self.last(features)
        return logits


def unet(*, in_channels: int = 3, classes: int = 2, resolution: int = 256) -> UNet:
    """U-Net with padded convolutions and batch norm; its weights do not depend on the resolution.

    Raises:
        ValueError: an argument is too small, or the resolution is not a multiple of 16.
    """
    check_arguments("unet", in_channels=in_channels, classes=classes, resolution=resolution)
    return UNet(in_channels, classes)

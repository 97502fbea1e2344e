"""LeNet-5: LeCun, Bottou, Bengio & Haffner, "Gradient-based learning applied to document
recognition", Proceedings of the IEEE 86 (1998).

Widths 6, 16, 120 and 84, 5x5 convolutions, average pooling and tanh, as published. Like most later
versions it omits three parts of 1998: the trained scale of the pooling layers, the sparse
connection table of the second convolution, and the radial basis outputs.
"""

from __future__ import annotations

from torch import Tensor, nn

from golow.models import check_arguments


class LeNet5(nn.Module):
    """Two 5x5 convolutions with average pooling under three linear layers, tanh between all.

    Input: [batch, in_channels, resolution, resolution]. Output: logits [batch, classes].
    """

    def __init__(self, in_channels: int, classes: int, resolution: int) -> None:
        super().__init__()
        # The paper places the 28x28 digits in 32x32 images; padding by 2 does so in the layer.
        self.conv1 = nn.Conv2d(in_channels, 6, kernel_size=5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, kernel_size=5)
        self.pool = nn.AvgPool2d(2)
        self.tanh = nn.Tanh()
        self.flatten = nn.Flatten()
        side = (resolution // 2 - 4) // 2  # after the two convolutions, each halved: 5 of 28
        self.fc1 = nn.Linear(16 * side * side, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, in_channels, resolution, resolution] -> logits [batch, classes]."""
        hidden = self.pool(self.tanh(self.conv1(images)))
        hidden = self.pool(self.tanh(self.conv2(hidden)))
        hidden = self.tanh(self.fc1(self.flatten(hidden)))
        hidden = self.tanh(self.fc2(hidden))
        logits: Tensor = self.fc3(hidden)
        return logits


def lenet5(*, in_channels: int = 1, classes: int = 10, resolution: int = 28) -> LeNet5:
    """LeNet-5 for square images of at least 12x12.

    Raises:
        ValueError: the resolution is below 12, or another argument below 1.
    """
    check_arguments("lenet5", in_channels=in_channels, classes=classes, resolution=resolution)
    return LeNet5(in_channels, classes, resolution)

"""A multilayer perceptron: three linear layers with ReLU between them."""

from __future__ import annotations

from torch import Tensor, nn

from golow.models import check_arguments


class MLP(nn.Module):
    """Linear layers of 512, 256 and ``classes`` features over the flattened image.

    Input: [batch, in_channels, resolution, resolution]. Output: logits [batch, classes].
    """

    def __init__(self, in_channels: int, classes: int, resolution: int) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.fc1 = nn.Linear(in_channels * resolution * resolution, 512)
        self.fc2 = nn.Linear(512, 256)
        self.fc3 = nn.Linear(256, classes)
        self.relu = nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, in_channels, resolution, resolution] -> logits [batch, classes]."""
        hidden = self.relu(self.fc1(self.flatten(images)))
        hidden = self.relu(self.fc2(hidden))
        logits: Tensor = self.fc3(hidden)
        return logits


def mlp(*, in_channels: int = 1, classes: int = 10, resolution: int = 28) -> MLP:
    """784 -> 512 -> 256 -> classes on MNIST's images; the input grows with their size.

    Raises:
        ValueError: an argument is below 1.
    """
    check_arguments("mlp", in_channels=in_channels, classes=classes, resolution=resolution)
    return MLP(in_channels, classes, resolution)

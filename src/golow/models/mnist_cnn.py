"""The network of PyTorch's MNIST example (pytorch/examples, ``mnist/main.py``)."""

from __future__ import annotations

from torch import Tensor, nn

from golow.models import check_arguments


class MnistCNN(nn.Module):
    """Two 3x3 convolutions, max pooling and two linear layers, with dropout.

    Input: [batch, in_channels, resolution, resolution]. Output: log-probabilities
    [batch, classes]. Cross entropy accepts them like logits, since the log-softmax of
    log-probabilities is the identity.
    """

    def __init__(self, in_channels: int, classes: int, resolution: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 32, kernel_size=3)
        self.conv2 = nn.Conv2d(32, 64, kernel_size=3)
        self.pool = nn.MaxPool2d(2)
        # Modules, not functions: the correctness check sets the probability of each to 0.
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.flatten = nn.Flatten()
        side = (resolution - 4) // 2  # each convolution removes 2, pooling halves: 28 becomes 12
        self.fc1 = nn.Linear(64 * side * side, 128)
        self.fc2 = nn.Linear(128, classes)
        self.relu = nn.ReLU()
        self.log_softmax = nn.LogSoftmax(dim=1)

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, in_channels, resolution, resolution] -> log-probabilities."""
        hidden = self.relu(self.conv1(images))
        hidden = self.relu(self.conv2(hidden))
        hidden = self.flatten(self.dropout1(self.pool(hidden)))
        hidden = self.dropout2(self.relu(self.fc1(hidden)))
        log_probabilities: Tensor = self.log_softmax(self.fc2(hidden))
        return log_probabilities


def mnist_cnn(*, in_channels: int = 1, classes: int = 10, resolution: int = 28) -> MnistCNN:
    """The MNIST example's network for square images of at least 6x6.

    Raises:
        ValueError: the resolution is below 6, or another argument below 1.
    """
    check_arguments("mnist_cnn", in_channels=in_channels, classes=classes, resolution=resolution)
    return MnistCNN(in_channels, classes, resolution)

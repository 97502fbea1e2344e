"""The model that the C runtime can run: one linear layer."""

from torch import Tensor, nn


class Linear(nn.Module):
    """[batch, 16] -> [batch, 8]"""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)

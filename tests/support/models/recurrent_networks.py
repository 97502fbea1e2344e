"""Small networks with recurrent layers."""

from __future__ import annotations

from torch import Tensor, nn

from support.models.drawn_recurrences import Drawn


class Recurrences(nn.Module):
    """Recurrent layers with sums around them, as in GNMT: each reads a sum of those below."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.LSTM(16, 16, batch_first=True) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)[0]
        return x.mean(1)


def sides(drawn: Drawn) -> int:
    """Layers and directions."""
    return int(drawn.settings["num_layers"]) * (2 if drawn.settings["bidirectional"] else 1)


class First(nn.Module):
    """The mean of what a recurrent layer makes of an input that has no gradient."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """[N, M, inputs] -> [N, hidden]"""
        y: Tensor = self.layer(x)[0]
        return y.mean(1)

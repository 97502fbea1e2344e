"""Networks of sound, points, videos and tables."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from further_bricks import Network


class Causal(Network):
    """A temporal convolutional network (Bai et al. 2018)."""

    sample = (16, 512)

    class Block(nn.Module):
        def __init__(self, channels: int, dilation: int) -> None:
            super().__init__()
            self.ends = 2 * dilation
            self.one = nn.Conv1d(channels, 64, 3, dilation=dilation)
            self.two = nn.Conv1d(64, 64, 3, dilation=dilation)
            self.short = nn.Identity() if channels == 64 else nn.Conv1d(channels, 64, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(self.one(functional.pad(x, (self.ends, 0))))
            y = torch.relu(self.two(functional.pad(y, (self.ends, 0))))
            return torch.relu(y + self.short(x))

    def __init__(self) -> None:
        super().__init__()
        blocks = (Causal.Block(64 if level else 16, 2**level) for level in range(6))
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x)[:, :, -1])


class Conformer(Network):
    """For speech (Gulati et al. 2020)."""

    sample = (128, 80)

    class Block(nn.Module):
        def __init__(self, width: int = 144, heads: int = 4) -> None:
            super().__init__()

            def feed_forward() -> nn.Module:
                inner = (nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
                return nn.Sequential(nn.LayerNorm(width), *inner)

            self.before, self.after = feed_forward(), feed_forward()
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
            self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
            self.gate = nn.Conv1d(width, 2 * width, 1)
            self.layers = nn.Sequential(
                nn.Conv1d(width, width, 15, padding=7, groups=width), nn.BatchNorm1d(width),
                nn.SiLU(), nn.Conv1d(width, width, 1),
            )  # fmt: skip

        def forward(self, x: Tensor) -> Tensor:
            x = x + 0.5 * self.before(x)
            y = self.norms[0](x)
            x = x + self.attention(y, y, y, need_weights=False)[0]
            y = functional.glu(self.gate(self.norms[1](x).transpose(1, 2)), 1)
            x = x + self.layers(y).transpose(1, 2)
            return self.norms[2](x + 0.5 * self.after(x))

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(80, 144), nn.Linear(144, 32)
        self.blocks = nn.Sequential(*(Conformer.Block() for _ in range(4)))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.blocks(self.first(x))).log_softmax(-1)


class SpeechEncoder(Network):
    """Whisper's encoder (Radford et al. 2022), four layers of the tiny one."""

    sample = (80, 200)

    def __init__(self, width: int = 384, heads: int = 6) -> None:
        super().__init__()
        self.one = nn.Conv1d(80, width, 3, padding=1)
        self.two = nn.Conv1d(width, width, 3, 2, 1)
        self.places = nn.Parameter(torch.randn(100, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(self.two(functional.gelu(self.one(x))))
        return self.norm(self.layers(x.transpose(1, 2) + self.places))


class PointNet(Network):
    """Points in space (Qi et al. 2017)."""

    sample = (3, 1024)

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for channels, filters in ((3, 64), (64, 64), (64, 128), (128, 1024)):
            layers += [nn.Conv1d(channels, filters, 1), nn.BatchNorm1d(filters), nn.ReLU()]
        self.points = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Linear(1024, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(),
            nn.Linear(256, 40),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.points(x).amax(2))


class Volumes(Network):
    """Videos (C3D, Tran et al. 2015), in small."""

    sample = (3, 8, 32, 32)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool3d((1, 2, 2)),
            nn.Conv3d(32, 64, 3, padding=1), nn.BatchNorm3d(64), nn.ReLU(), nn.MaxPool3d(2),
            nn.Conv3d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2), nn.Flatten(),
            nn.Linear(128 * 2 * 4 * 4, 50),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Recurrent(Network):
    """Two layers of GRU in both directions, and attention over their results."""

    sample = (100, 40)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.GRU(40, 128, 2, batch_first=True, bidirectional=True)
        self.weigh, self.head = nn.Linear(256, 1), nn.Linear(256, 12)

    def forward(self, x: Tensor) -> Tensor:
        x, _ = self.layers(x)
        return self.head((self.weigh(x).softmax(1) * x).sum(1))


class Table(Network):
    """Columns of a table as tokens (FT-Transformer, Gorishniy et al. 2021)."""

    sample = (24,)

    def __init__(self, columns: int = 24, width: int = 96) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, width) * 0.1)
        self.bias = nn.Parameter(torch.zeros(columns, width))
        self.summary = nn.Parameter(torch.randn(1, 1, width) * 0.1)
        layer = nn.TransformerEncoderLayer(
            width, 8, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, :, None] * self.weight + self.bias
        x = torch.cat([self.summary.expand(len(x), -1, -1), x], 1)
        return self.head(self.layers(x)[:, 0])


class Bottleneck(Network):
    """An autoencoder of linear layers."""

    sample = (784,)

    def __init__(self) -> None:
        super().__init__()
        sizes = (784, 256, 64, 16, 64, 256)
        layers: list[nn.Module] = []
        for size, new in pairwise(sizes):
            layers += [nn.Linear(size, new), nn.LeakyReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(256, 784), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

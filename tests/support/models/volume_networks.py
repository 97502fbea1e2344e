"""Networks of volumes."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """A block of a network for videos."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv3d(8, 16, 3, padding=1, bias=False)
        self.second = nn.Conv3d(16, 16, 3, padding=1, bias=False)
        self.one, self.two = nn.BatchNorm3d(16), nn.BatchNorm3d(16)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.one(self.first(x)))
        return torch.relu(self.two(self.second(x)) + x).mean((2, 3, 4))


def conv(*arguments: int, **settings: object) -> nn.Conv3d:
    return nn.Conv3d(*arguments, **settings)  # type: ignore[arg-type]


def up(*arguments: int, **settings: object) -> nn.ConvTranspose3d:
    return nn.ConvTranspose3d(*arguments, **settings)  # type: ignore[arg-type]


NETWORKS = {
    "plain": nn.Sequential(conv(8, 16, 3), nn.ReLU(), nn.Flatten()),
    "strided": nn.Sequential(conv(8, 16, 3, stride=(1, 2, 2), padding=(0, 1, 2)), nn.Flatten()),
    "dilated": nn.Sequential(conv(8, 6, 2, dilation=(1, 2, 3)), nn.Tanh(), nn.Flatten()),
    "grouped": nn.Sequential(conv(8, 16, 3, groups=4, bias=False), nn.Flatten()),
    "depthwise": nn.Sequential(conv(8, 8, 3, groups=8, padding=1), nn.ReLU(), nn.Flatten()),
    "same": nn.Sequential(conv(8, 4, (2, 4, 3), padding="same"), nn.Flatten()),
    "padded before": nn.Sequential(
        nn.ConstantPad3d((1, 0, 2, 0, 0, 1), 0.0), conv(8, 4, 3), nn.Flatten(),
    ),
    "normed": nn.Sequential(conv(8, 16, 3), nn.BatchNorm3d(16), nn.ReLU(), nn.Flatten()),
    "residual": Residual(),
    "pooled": nn.Sequential(
        conv(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool3d((1, 2, 2)),
        conv(16, 4, 1), nn.MaxPool3d(3, 1, padding=1, ceil_mode=True), nn.Flatten(),
    ),
    "transposed": nn.Sequential(conv(8, 6, 3), nn.ReLU(), up(6, 4, 2, stride=2), nn.Flatten()),
    "transposed without bias": nn.Sequential(
        up(8, 4, 3, stride=2, padding=1, output_padding=1, groups=2, bias=False), nn.ReLU(),
        nn.Flatten(),
    ),
}  # fmt: skip


def seeded(name: str) -> nn.Module:
    """The network with weights that do not depend on what drew numbers before."""
    torch.manual_seed(0)
    for layer in NETWORKS[name].modules():
        if callable(reset := getattr(layer, "reset_parameters", None)):
            reset()
    return NETWORKS[name]

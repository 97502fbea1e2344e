"""Networks that tell what an image shows."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from further_bricks import Classifier, Excitation, Network, Residual, Shortcut, conv


class ConvMixer(Classifier):
    """Trockman & Kolter 2022."""

    sample = (3, 64, 64)

    def __init__(self, width: int = 256, depth: int = 8) -> None:
        def after(layer: nn.Module) -> list[nn.Module]:
            return [layer, nn.GELU(), nn.BatchNorm2d(width)]

        blocks = [
            nn.Sequential(
                Residual(*after(nn.Conv2d(width, width, 9, groups=width, padding=4))),
                *after(nn.Conv2d(width, width, 1)),
            )
            for _ in range(depth)
        ]
        first = after(nn.Conv2d(3, width, 4, 4))
        super().__init__(nn.Sequential(*first, *blocks), width, 100)


class Mixer(Network):
    """MLP-Mixer (Tolstikhin et al. 2021)."""

    sample = (3, 64, 64)

    class Block(nn.Module):
        def __init__(self, patches: int, width: int) -> None:
            super().__init__()
            self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
            self.tokens = nn.Sequential(nn.Linear(patches, 128), nn.GELU(), nn.Linear(128, patches))
            self.channels = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.tokens(self.one(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.two(x))

    def __init__(self, width: int = 256, depth: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.blocks = nn.Sequential(*(Mixer.Block(64, width) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.patches(x).flatten(2).transpose(1, 2))
        return self.head(self.norm(x).mean(1))


class RegNetY(Classifier):
    """RegNetY-400MF (Radosavovic et al. 2020)."""

    sample = (3, 64, 64)

    class Block(Shortcut):
        def __init__(self, channels: int, filters: int, stride: int) -> None:
            layers = nn.Sequential(
                conv(channels, filters, 1),
                conv(filters, filters, 3, stride, filters // 8),
                Excitation(filters, channels // 4, nn.Sigmoid),
                conv(filters, filters, 1, act=None),
            )
            same = channels == filters and stride == 1
            short = nn.Identity() if same else conv(channels, filters, 1, stride, act=None)
            super().__init__(layers, short)

    def __init__(self) -> None:
        blocks: list[nn.Module] = [conv(3, 32, 3, 2)]
        channels = 32
        for filters, depth in ((48, 1), (104, 3), (208, 6), (440, 6)):
            for index in range(depth):
                blocks.append(RegNetY.Block(channels, filters, 1 if index else 2))
                channels = filters
        super().__init__(nn.Sequential(*blocks), channels, 1000)


class SqueezeNet(Network):
    """Iandola et al. 2016, version 1.1."""

    sample = (3, 64, 64)

    class Fire(nn.Module):
        def __init__(self, channels: int, inner: int, each: int) -> None:
            super().__init__()
            self.squeeze = nn.Conv2d(channels, inner, 1)
            self.one, self.three = nn.Conv2d(inner, each, 1), nn.Conv2d(inner, each, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(self.squeeze(x))
            return torch.cat([torch.relu(self.one(x)), torch.relu(self.three(x))], 1)

    def __init__(self) -> None:
        super().__init__()
        fire = SqueezeNet.Fire

        def pool() -> nn.Module:
            return nn.MaxPool2d(3, 2, ceil_mode=True)

        self.layers = nn.Sequential(
            nn.Conv2d(3, 64, 3, 2), nn.ReLU(), pool(), fire(64, 16, 64), fire(128, 16, 64),
            pool(), fire(128, 32, 128), fire(256, 32, 128), pool(), fire(256, 48, 192),
            fire(384, 48, 192), fire(384, 64, 256), fire(512, 64, 256), nn.Dropout(),
            nn.Conv2d(512, 1000, 1), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).mean((2, 3))


class GoogLeNet(Network):
    """Szegedy et al. 2015, with batch norm."""

    sample = (3, 64, 64)
    SIZES = (
        (192, 64, 96, 128, 16, 32, 32), (256, 128, 128, 192, 32, 96, 64),
        (480, 192, 96, 208, 16, 48, 64), (512, 160, 112, 224, 24, 64, 64),
        (512, 128, 128, 256, 24, 64, 64), (512, 112, 144, 288, 32, 64, 64),
        (528, 256, 160, 320, 32, 128, 128), (832, 256, 160, 320, 32, 128, 128),
        (832, 384, 192, 384, 48, 128, 128),
    )  # fmt: skip

    class Inception(nn.Module):
        def __init__(self, x: int, a: int, b: int, bb: int, c: int, cc: int, d: int) -> None:
            super().__init__()
            pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(x, d, 1))
            self.ways = nn.ModuleList(
                [
                    conv(x, a, 1),
                    nn.Sequential(conv(x, b, 1), conv(b, bb)),
                    nn.Sequential(conv(x, c, 1), conv(c, cc)),
                    pooled,
                ]
            )

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([way(x) for way in self.ways], 1)

    def __init__(self) -> None:
        super().__init__()

        def pool() -> nn.Module:
            return nn.MaxPool2d(3, 2, ceil_mode=True)

        found = [GoogLeNet.Inception(*sizes) for sizes in self.SIZES]
        self.layers = nn.Sequential(
            conv(3, 64, 7, 2), pool(), conv(64, 64, 1), conv(64, 192), pool(), *found[:2],
            pool(), *found[2:7], pool(), *found[7:],
        )  # fmt: skip
        self.head = nn.Linear(1024, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.dropout(self.layers(x).mean((2, 3)), 0.2, self.training))


class MobileNetV3(Network):
    """The large one (Howard et al. 2019)."""

    sample = (3, 64, 64)
    # channels, expanded, filters, kernel, excitation, hard swish, stride
    SIZES = (
        (16, 16, 16, 3, 0, 0, 1), (16, 64, 24, 3, 0, 0, 2), (24, 72, 24, 3, 0, 0, 1),
        (24, 72, 40, 5, 1, 0, 2), (40, 120, 40, 5, 1, 0, 1), (40, 120, 40, 5, 1, 0, 1),
        (40, 240, 80, 3, 0, 1, 2), (80, 200, 80, 3, 0, 1, 1), (80, 184, 80, 3, 0, 1, 1),
        (80, 184, 80, 3, 0, 1, 1), (80, 480, 112, 3, 1, 1, 1), (112, 672, 112, 3, 1, 1, 1),
        (112, 672, 160, 5, 1, 1, 2), (160, 960, 160, 5, 1, 1, 1), (160, 960, 160, 5, 1, 1, 1),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        swish = nn.Hardswish
        self.blocks = nn.Sequential(
            conv(3, 16, 3, 2, act=swish),
            *map(self._block, self.SIZES),
            conv(160, 960, 1, act=swish),
        )
        self.head = nn.Sequential(
            nn.Linear(960, 1280), swish(), nn.Dropout(0.2), nn.Linear(1280, 1000)
        )

    def _block(self, sizes: tuple[int, ...]) -> nn.Module:
        channels, inner, filters, kernel, excited, swish, stride = sizes
        act = nn.Hardswish if swish else nn.ReLU
        layers = [
            *([conv(channels, inner, 1, act=act)] if channels != inner else []),
            conv(inner, inner, kernel, stride, inner, act),
            *([Excitation(inner, inner // 4, nn.Hardsigmoid)] if excited else []),
            conv(inner, filters, 1, act=None),
        ]
        same = channels == filters and stride == 1
        return Residual(*layers) if same else nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).mean((2, 3)))


class LinearAttention(Classifier):
    """Convolutions and attention without softmax, as in EfficientViT (Cai et al. 2023)."""

    sample = (3, 64, 64)

    class Block(nn.Module):
        def __init__(self, width: int, heads: int = 4) -> None:
            super().__init__()
            self.heads = heads
            self.inner = nn.Conv2d(width, 3 * width, 1, bias=False)
            self.outer = conv(width, width, 1, act=None)
            self.mix = Residual(
                conv(width, 4 * width, 1, act=nn.Hardswish),
                conv(4 * width, 4 * width, 3, groups=4 * width, act=nn.Hardswish),
                conv(4 * width, width, 1, act=None),
            )

        def forward(self, x: Tensor) -> Tensor:
            images, width, *_ = x.shape
            parts = self.inner(x).reshape(images, self.heads, 3 * width // self.heads, -1)
            query, key, value = parts.chunk(3, 2)
            query, key = torch.relu(query), torch.relu(key).transpose(-1, -2)
            weighed = (value @ key) @ query
            total = key.sum(2, keepdim=True) @ query
            return self.mix(x + self.outer((weighed / (total + 1e-6)).reshape(x.shape)))

    def __init__(self) -> None:
        block, swish = LinearAttention.Block, nn.Hardswish
        blocks = nn.Sequential(
            conv(3, 32, 3, 2, act=swish), conv(32, 64, 3, 2, act=swish), block(64), block(64),
            conv(64, 128, 3, 2, act=swish), block(128), block(128),
        )  # fmt: skip
        super().__init__(blocks, 128, 100)


class GroupNormed(Classifier):
    """Residual blocks with group norm (Wu & He 2018)."""

    sample = (3, 64, 64)

    class Block(Shortcut):
        def __init__(self, channels: int, filters: int, stride: int) -> None:
            layers = nn.Sequential(
                nn.Conv2d(channels, filters, 3, stride, 1, bias=False),
                nn.GroupNorm(8, filters), nn.ReLU(),
                nn.Conv2d(filters, filters, 3, 1, 1, bias=False), nn.GroupNorm(8, filters),
            )  # fmt: skip
            same = channels == filters
            super().__init__(
                layers, nn.Identity() if same else nn.Conv2d(channels, filters, 1, stride)
            )

    def __init__(self) -> None:
        block = GroupNormed.Block
        blocks = nn.Sequential(
            nn.Conv2d(3, 64, 3, 2, 1), nn.GroupNorm(8, 64), nn.ReLU(), block(64, 64, 1),
            block(64, 128, 2), block(128, 256, 2), block(256, 256, 1),
        )  # fmt: skip
        super().__init__(blocks, 256, 10)

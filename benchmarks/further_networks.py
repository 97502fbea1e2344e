"""Networks that the zoo does not have, each in small and with random weights, as their authors'
code would write them. `race_further_networks.py` races the levels on them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class Network(nn.Module):
    """A network, and the shape of a sample."""

    sample: tuple[int, ...]


class Residual(nn.Module):
    """x + layer(x)."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


def conv(
    channels: int,
    filters: int,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    act: Callable[[], nn.Module] | None = nn.ReLU,
    dilation: int = 1,
) -> nn.Sequential:
    """Convolution, batch norm, activation."""
    padding = kernel // 2 * dilation
    layer = nn.Conv2d(
        channels, filters, kernel, stride, padding, dilation=dilation, groups=groups, bias=False
    )
    return nn.Sequential(layer, nn.BatchNorm2d(filters), *([act()] if act else []))


class Excitation(nn.Module):
    """Channels weighed by the whole image (Hu et al. 2018)."""

    def __init__(self, channels: int, inner: int, gate: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)
        self.gate = gate()

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.relu(self.down(functional.adaptive_avg_pool2d(x, 1)))
        return x * self.gate(self.up(weights))


# ---------------------------------------------------------------- images


class ConvMixer(Network):
    """Trockman & Kolter 2022."""

    sample = (3, 64, 64)

    def __init__(self, width: int = 256, depth: int = 8) -> None:
        super().__init__()

        def after(layer: nn.Module) -> list[nn.Module]:
            return [layer, nn.GELU(), nn.BatchNorm2d(width)]

        blocks = [
            nn.Sequential(
                Residual(*after(nn.Conv2d(width, width, 9, groups=width, padding=4))),
                *after(nn.Conv2d(width, width, 1)),
            )
            for _ in range(depth)
        ]
        self.layers = nn.Sequential(*after(nn.Conv2d(3, width, 4, 4)), *blocks)
        self.head = nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean((2, 3)))


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


class RegNetY(Network):
    """RegNetY-400MF (Radosavovic et al. 2020)."""

    sample = (3, 64, 64)

    class Block(nn.Module):
        def __init__(self, channels: int, filters: int, stride: int) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                conv(channels, filters, 1),
                conv(filters, filters, 3, stride, filters // 8),
                Excitation(filters, channels // 4, nn.Sigmoid),
                conv(filters, filters, 1, act=None),
            )
            same = channels == filters and stride == 1
            self.short = nn.Identity() if same else conv(channels, filters, 1, stride, act=None)

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.layers(x) + self.short(x))

    def __init__(self) -> None:
        super().__init__()
        blocks, channels = [conv(3, 32, 3, 2)], 32
        for filters, depth in ((48, 1), (104, 3), (208, 6), (440, 6)):
            for index in range(depth):
                blocks.append(RegNetY.Block(channels, filters, 1 if index else 2))  # type: ignore[arg-type]
                channels = filters
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).mean((2, 3)))


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


class LinearAttention(Network):
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
        super().__init__()
        block, swish = LinearAttention.Block, nn.Hardswish
        self.blocks = nn.Sequential(
            conv(3, 32, 3, 2, act=swish), conv(32, 64, 3, 2, act=swish), block(64), block(64),
            conv(64, 128, 3, 2, act=swish), block(128), block(128),
        )  # fmt: skip
        self.head = nn.Linear(128, 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).mean((2, 3)))


class GroupNormed(Network):
    """Residual blocks with group norm (Wu & He 2018)."""

    sample = (3, 64, 64)

    class Block(nn.Module):
        def __init__(self, channels: int, filters: int, stride: int) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(channels, filters, 3, stride, 1, bias=False),
                nn.GroupNorm(8, filters), nn.ReLU(),
                nn.Conv2d(filters, filters, 3, 1, 1, bias=False), nn.GroupNorm(8, filters),
            )  # fmt: skip
            same = channels == filters
            self.short = nn.Identity() if same else nn.Conv2d(channels, filters, 1, stride)

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.layers(x) + self.short(x))

    def __init__(self) -> None:
        super().__init__()
        block = GroupNormed.Block
        self.blocks = nn.Sequential(
            nn.Conv2d(3, 64, 3, 2, 1), nn.GroupNorm(8, 64), nn.ReLU(), block(64, 64, 1),
            block(64, 128, 2), block(128, 256, 2), block(256, 256, 1),
        )  # fmt: skip
        self.head = nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).mean((2, 3)))


# ---------------------------------------------------------------- images from images


class DeepLab(Network):
    """Segmentation by dilated convolutions (Chen et al. 2017)."""

    sample = (3, 96, 96)

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(3, 32, 3, 2), conv(32, 64, 3, 2), conv(64, 128, 3, 2),
            conv(128, 128, dilation=2), conv(128, 256, dilation=4),
        )  # fmt: skip
        self.ways = nn.ModuleList([conv(256, 64, 1)])
        self.ways.extend(conv(256, 64, dilation=d) for d in (3, 6, 9))
        self.whole, self.mix = conv(256, 64, 1), conv(320, 128, 1)
        self.head = nn.Conv2d(128, 21, 1)

    def forward(self, x: Tensor) -> Tensor:
        size, x = x.shape[2:], self.body(x)
        whole = self.whole(functional.adaptive_avg_pool2d(x, 1))
        whole = functional.interpolate(whole, x.shape[2:], mode="bilinear")
        x = self.head(self.mix(torch.cat([*(way(x) for way in self.ways), whole], 1)))
        return functional.interpolate(x, size, mode="bilinear")


class SuperResolution(Network):
    """EDSR (Lim et al. 2017)."""

    sample = (3, 32, 32)

    def __init__(self) -> None:
        super().__init__()

        def same(channels: int, filters: int) -> nn.Conv2d:
            return nn.Conv2d(channels, filters, 3, padding=1)

        self.first = same(3, 64)
        self.body = Residual(*(Residual(same(64, 64), nn.ReLU(), same(64, 64)) for _ in range(8)))
        self.last = nn.Sequential(same(64, 256), nn.PixelShuffle(2), same(64, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(self.first(x)))


class Generator(Network):
    """DCGAN's (Radford et al. 2016)."""

    sample = (100, 1, 1)

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 100
        for filters, stride, padding in ((512, 1, 0), (256, 2, 1), (128, 2, 1), (64, 2, 1)):
            up = nn.ConvTranspose2d(channels, filters, 4, stride, padding, bias=False)
            layers += [up, nn.BatchNorm2d(filters), nn.ReLU()]
            channels = filters
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Autoencoder(Network):
    """Variational, with convolutions (Kingma & Welling 2014); without its noise."""

    sample = (1, 28, 28)

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 32, 4, 2, 1), nn.ELU(), nn.Conv2d(32, 64, 4, 2, 1), nn.ELU(),
            nn.Flatten(), nn.Linear(64 * 49, 64),
        )  # fmt: skip
        self.grow = nn.Linear(32, 64 * 49)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ELU(), nn.ConvTranspose2d(32, 1, 4, 2, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        mean, spread = self.encoder(x).chunk(2, 1)
        code = self.grow(mean + 0.1 * torch.tanh(spread))
        return torch.sigmoid(self.decoder(code.view(-1, 64, 7, 7)))


class Detector(Network):
    """A small detector in the manner of YOLOv8 (Jocher et al. 2023)."""

    sample = (3, 128, 128)

    class Split(nn.Module):
        def __init__(self, width: int, depth: int) -> None:
            super().__init__()
            half, act = width // 2, nn.SiLU
            self.first = conv(width, width, 1, act=act)
            self.blocks = nn.ModuleList(
                Residual(conv(half, half, act=act), conv(half, half, act=act)) for _ in range(depth)
            )
            self.last = conv(half * (depth + 2), width, 1, act=act)

        def forward(self, x: Tensor) -> Tensor:
            parts = list(self.first(x).chunk(2, 1))
            for block in self.blocks:
                parts.append(block(parts[-1]))
            return self.last(torch.cat(parts, 1))

    class Pyramid(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.first = conv(width, width // 2, 1, act=nn.SiLU)
            self.last = conv(2 * width, width, 1, act=nn.SiLU)

        def forward(self, x: Tensor) -> Tensor:
            parts = [self.first(x)]
            for _ in range(3):
                parts.append(functional.max_pool2d(parts[-1], 5, 1, 2))
            return self.last(torch.cat(parts, 1))

    def __init__(self) -> None:
        super().__init__()
        split, act = Detector.Split, nn.SiLU

        def down(channels: int, depth: int) -> list[nn.Module]:
            return [conv(channels, 2 * channels, 3, 2, act=act), split(2 * channels, depth)]

        self.fine = nn.Sequential(conv(3, 16, 3, 2, act=act), *down(16, 1), *down(32, 2))
        self.middle = nn.Sequential(*down(64, 2))
        self.coarse = nn.Sequential(*down(128, 1), Detector.Pyramid(256))
        self.to_middle = nn.Sequential(conv(384, 128, 1, act=act), split(128, 1))
        self.to_fine = nn.Sequential(conv(192, 64, 1, act=act), split(64, 1))
        self.heads = nn.ModuleList(nn.Conv2d(width, 84, 1) for width in (64, 128, 256))

    def forward(self, x: Tensor) -> Tensor:
        fine = self.fine(x)
        middle = self.middle(fine)
        coarse = self.coarse(middle)
        middle = self.to_middle(torch.cat([_twice(coarse), middle], 1))
        fine = self.to_fine(torch.cat([_twice(middle), fine], 1))
        found = zip(self.heads, (fine, middle, coarse), strict=True)
        return torch.cat([head(part).flatten(2) for head, part in found], 2)


def _twice(x: Tensor) -> Tensor:
    return functional.interpolate(x, scale_factor=2.0)


class DiffusionUNet(Network):
    """The network of a diffusion model (Ho et al. 2020), its time taken from the image."""

    sample = (4, 32, 32)

    class Block(nn.Module):
        def __init__(self, channels: int, filters: int) -> None:
            super().__init__()
            self.first = nn.Sequential(
                nn.GroupNorm(16, channels), nn.SiLU(), nn.Conv2d(channels, filters, 3, padding=1)
            )
            self.time = nn.Sequential(nn.SiLU(), nn.Linear(128, filters))
            self.second = nn.Sequential(
                nn.GroupNorm(16, filters), nn.SiLU(), nn.Conv2d(filters, filters, 3, padding=1)
            )
            same = channels == filters
            self.short = nn.Identity() if same else nn.Conv2d(channels, filters, 1)

        def forward(self, x: Tensor, time: Tensor) -> Tensor:
            inner = self.first(x) + self.time(time)[:, :, None, None]
            return self.short(x) + self.second(inner)

    class Attention(nn.Module):
        def __init__(self, width: int, heads: int = 4) -> None:
            super().__init__()
            self.heads, self.norm = heads, nn.GroupNorm(16, width)
            self.inner, self.outer = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

        def forward(self, x: Tensor) -> Tensor:
            images, width, *_ = x.shape
            parts = self.inner(self.norm(x)).reshape(images, 3, self.heads, width // self.heads, -1)
            query, key, value = parts.transpose(-1, -2).unbind(1)
            found = functional.scaled_dot_product_attention(query, key, value)
            return x + self.outer(found.transpose(-1, -2).reshape(x.shape))

    def __init__(self) -> None:
        super().__init__()
        block, attention = DiffusionUNet.Block, DiffusionUNet.Attention
        self.time = nn.Sequential(nn.Linear(4, 128), nn.SiLU(), nn.Linear(128, 128))
        self.first = nn.Conv2d(4, 64, 3, padding=1)
        self.down1, self.pool1 = block(64, 64), nn.Conv2d(64, 128, 3, 2, 1)
        self.down2, self.see2, self.pool2 = (
            block(128, 128), attention(128), nn.Conv2d(128, 256, 3, 2, 1)
        )  # fmt: skip
        self.middle1, self.see, self.middle2 = block(256, 256), attention(256), block(256, 256)
        self.up2, self.see3, self.up1 = block(384, 128), attention(128), block(192, 64)
        self.last = nn.Sequential(nn.GroupNorm(16, 64), nn.SiLU(), nn.Conv2d(64, 4, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        time = self.time(x.mean((2, 3)))
        one = self.down1(self.first(x), time)
        two = self.see2(self.down2(self.pool1(one), time))
        x = self.middle2(self.see(self.middle1(self.pool2(two), time)), time)
        x = self.see3(self.up2(torch.cat([_twice(x), two], 1), time))
        return self.last(self.up1(torch.cat([_twice(x), one], 1), time))


# ---------------------------------------------------------------- lines, volumes, rows


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


NETWORKS: dict[str, type[Network]] = {kind.__name__: kind for kind in Network.__subclasses__()}

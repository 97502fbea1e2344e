"""Networks that make images, or find things in them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from further_bricks import Network, Residual, conv


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

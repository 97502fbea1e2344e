"""A block of ConvNeXt and one of a vision transformer: small networks for `golow audit`.

golow audit examples/blocks.py:ConvNeXtBlock --input 96x64x64 --batch 4
golow audit examples/blocks.py:TransformerBlock --input 197x192 --batch 8
"""

from torch import Tensor, nn


class ConvNeXtBlock(nn.Module):
    """Liu et al. 2022, "A ConvNet for the 2020s": (N, 96, H, W) to the same shape."""

    def __init__(self) -> None:
        super().__init__()
        self.spatial = nn.Conv2d(96, 96, kernel_size=7, padding=3, groups=96)
        self.norm = nn.LayerNorm(96, eps=1e-6)
        self.channels = nn.Sequential(nn.Linear(96, 384), nn.GELU(), nn.Linear(384, 96))

    def forward(self, x: Tensor) -> Tensor:
        """The sum of x and what the block makes of it."""
        last = self.spatial(x).permute(0, 2, 3, 1)
        changed: Tensor = self.channels(self.norm(last)).permute(0, 3, 1, 2)
        return x + changed


class TransformerBlock(nn.Module):
    """Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", with the sizes of ViT-Tiny:
    (N, tokens, 192) to the same shape."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(
            192, 3, 768, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )

    def forward(self, x: Tensor) -> Tensor:
        """Attention, then two linear layers, each added to what it reads."""
        changed: Tensor = self.block(x)
        return changed

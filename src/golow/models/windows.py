"""Attention within shifted windows of an image, as in Swin transformers (section 3.2 of
arXiv:2103.14030). State-dict names as in torchvision.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

WINDOW = 7  # pixels of a window's side
_FAR = -100.0  # added where two pixels of a window are not neighbours in the image


class WindowAttention(nn.Module):
    """Self-attention among the pixels of each window, with a learned bias for each distance.

    [batch, size, size, channels], the same. size: the side of the images; up to the next multiple
    of the window they are filled with zeros. shift: the windows begin this many pixels to the right
    and down, and wrap around; an image of one window is not shifted.
    """

    relative_position_index: Tensor
    far: Tensor

    def __init__(self, channels: int, heads: int, size: int, shift: int) -> None:
        super().__init__()
        self.heads = heads
        self.padding = -size % WINDOW
        self.shift = shift if size > WINDOW else 0
        distances = (2 * WINDOW - 1) ** 2
        self.relative_position_bias_table = nn.Parameter(torch.empty(distances, heads))
        self.register_buffer("relative_position_index", _relative_positions())
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)
        if self.shift:
            # It follows from the size: the published state dict does not have it.
            far = _far_pixels(size + self.padding, self.shift)
            self.register_buffer("far", far, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the biases as the paper's authors do."""
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def forward(self, images: Tensor) -> Tensor:
        """The images after attention."""
        size, side = images.shape[1], images.shape[1] + self.padding
        if self.padding:
            images = functional.pad(images, (0, 0, 0, self.padding, 0, self.padding))
        if self.shift:
            images = images.roll((-self.shift, -self.shift), (1, 2))
        images = _from_windows(self._attention(_to_windows(images)), side)
        if self.shift:
            images = images.roll((self.shift, self.shift), (1, 2))
        return images[:, :size, :size] if self.padding else images

    def _attention(self, windows: Tensor) -> Tensor:
        """[windows of all images, pixels, channels], the same."""
        count, pixels, channels = windows.shape
        qkv = self.qkv(windows).view(count, pixels, 3, self.heads, channels // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind()
        scores = query * query.shape[-1] ** -0.5 @ key.transpose(-2, -1) + self._bias()
        if self.shift:
            by_image = scores.view(-1, len(self.far), self.heads, pixels, pixels) + self.far
            scores = by_image.view(count, self.heads, pixels, pixels)
        attended = scores.softmax(-1) @ value
        projected: Tensor = self.proj(attended.transpose(1, 2).reshape(count, pixels, channels))
        return projected

    def _bias(self) -> Tensor:
        """The bias of each pair of pixels of a window: [heads, pixels, pixels]."""
        pairs = functional.embedding(
            self.relative_position_index, self.relative_position_bias_table
        )
        return pairs.view(WINDOW**2, WINDOW**2, self.heads).permute(2, 0, 1)


def _to_windows(images: Tensor) -> Tensor:
    """[batch, side, side, channels] -> [batch * windows, pixels, channels]."""
    batch, side, _, channels = images.shape
    along = side // WINDOW
    split = images.view(batch, along, WINDOW, along, WINDOW, channels)
    return split.permute(0, 1, 3, 2, 4, 5).reshape(-1, WINDOW**2, channels)


def _from_windows(windows: Tensor, side: int) -> Tensor:
    """The inverse of `_to_windows`."""
    along, channels = side // WINDOW, windows.shape[-1]
    split = windows.view(-1, along, along, WINDOW, WINDOW, channels)
    return split.permute(0, 1, 3, 2, 4, 5).reshape(-1, side, side, channels)


def _relative_positions() -> Tensor:
    """For each pair of a window's pixels the row of the table with their distance's bias."""
    pixels = torch.arange(WINDOW**2)
    row, column = pixels // WINDOW, pixels % WINDOW
    down = row[:, None] - row + WINDOW - 1
    right = column[:, None] - column + WINDOW - 1
    return (down * (2 * WINDOW - 1) + right).flatten()


def _far_pixels(side: int, shift: int) -> Tensor:
    """[windows, 1, pixels, pixels]: 0, or `_FAR` if wrapping brought the two pixels together."""
    position = torch.arange(side)
    # Along an axis: windows that are whole, then the two parts of the last one.
    part = (position >= side - WINDOW).long() + (position >= side - shift)
    region = _to_windows((3 * part[:, None] + part)[None, :, :, None]).squeeze(-1)
    return ((region[:, :, None] != region[:, None]) * _FAR)[:, None]

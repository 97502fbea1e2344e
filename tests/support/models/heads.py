"""Attention as transformers write it, for the tests of what levels make of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Heads(nn.Module):
    """Four heads of x [B, L, 16], query, key and value from one product, in [B, 16].

    groups: heads that keys and values have. seen: how many of the last places keys and values come
    from; all by default. mask: by truth values of the keys ("padding") or of rows and keys of which
    one row sees nothing ("rows"), or by "numbers"; none by default.
    """

    def __init__(
        self,
        causal: bool = False,
        groups: int = 4,
        width: int = 8,
        seen: int = 0,
        mask: str = "",
    ) -> None:
        super().__init__()
        self.mask = mask
        self.causal, self.groups, self.width, self.seen = causal, groups, width, seen
        self.inner = nn.Linear(16, (4 + 2 * groups) * width)
        self.outer = nn.Linear(4 * width, 16)

    def forward(self, x: Tensor) -> Tensor:
        images, length, _ = x.shape
        heads = self.inner(x).view(images, length, -1, self.width).transpose(1, 2)
        query, key, value = heads.split([4, self.groups, self.groups], 1)
        found = functional.scaled_dot_product_attention(
            query,
            key[:, :, -self.seen :],
            value[:, :, -self.seen :],
            attn_mask=self._mask(images, length, x.dtype),
            is_causal=self.causal,
            enable_gqa=self.groups != 4,
        )
        return self.outer(found.transpose(1, 2).flatten(2)).mean(1)

    def _mask(self, images: int, length: int, dtype: torch.dtype) -> Tensor | None:
        places = torch.arange(length)
        if self.mask == "padding":
            shown = length - 2 * torch.arange(images)
            return (places < shown.unsqueeze(1)).view(images, 1, 1, length)
        if self.mask == "rows":
            return places.unsqueeze(1) > places
        if self.mask == "numbers":
            far = -torch.ones(4, 1, 1) * (places.unsqueeze(1) - places).abs()
            # PyTorch 2.11 to 2.13 reads a float32 mask of a float64 query as if it were float64.
            return far.masked_fill(places == 1, -torch.inf).unsqueeze(0).to(dtype)
        return None

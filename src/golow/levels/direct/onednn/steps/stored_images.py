"""Images as generated kernels read them: rows of columns in memory, one after the other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.direct.onednn.bindings.constants import CHANNELS_LAST
from golow.levels.direct.onednn.bindings.library import Descriptor, channel_block
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.lower.ir.graph import Ref

if TYPE_CHECKING:
    from golow.levels.direct.onednn.build.builder import Builder


def as_stored(build: Builder, reference: Ref) -> tuple[Tensor, tuple[int, int, int]]:
    """Return an image [N, C, H, W] or a matrix [N, C], and its sizes in memory as [outer, pixels,
    columns]: channels in blocks, last, or first."""
    x = build.values.tensor(reference)
    images, channels, *image = x.shape
    if not image:
        return build.values.plain(reference), (1, images, channels)
    pixels, block = math.prod(image), channel_block()
    if channels % block.size == 0 and x.layout == Descriptor.tagged(x.shape, block.tag):
        return x, (images * channels // block.size, pixels, block.size)
    if x.layout == Descriptor.tagged(x.shape, CHANNELS_LAST):
        return x, (images, pixels, channels)
    return build.values.plain(reference), (images * channels, pixels, 1)

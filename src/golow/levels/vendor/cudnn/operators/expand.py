"""A tensor repeated along axes of one element, and along missing axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.gathering import gather
from golow.levels.vendor.implementation import Implementation
from golow.lower.operators.expand import Expand

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


def expand(build: Builder, arguments: Expand) -> None:
    """Add a copy that reads with stride zero along these axes."""
    tensor = build.tensor(arguments.x)
    pairs = zip(tensor.shape, tensor.layout.strides(tensor.shape), strict=True)
    own = [0 if size == 1 else stride for size, stride in pairs]
    gather(build, tensor, [0] * (len(arguments.shape) - len(own)) + own)


IMPLEMENTATIONS = (Implementation(Expand, expand),)

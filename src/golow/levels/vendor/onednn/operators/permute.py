"""A tensor with its axes in another order."""

from __future__ import annotations

from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.refusing import refuse_integers
from golow.lower.operators.permute import Permute


def permute(build: Builder, arguments: Permute) -> None:
    """A view; row-major first where the layout has blocks."""
    tensor = build.tensor(arguments.x)
    if tensor.layout.blocks:
        tensor = build.plain(arguments.x)
    build.define(0, tensor._replace(descriptor=tensor.layout.permuted(arguments.order)))


IMPLEMENTATIONS = (Implementation(Permute, permute, refuse_integers),)

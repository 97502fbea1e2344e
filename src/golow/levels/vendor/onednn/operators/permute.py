"""A tensor with its axes permuted."""

from __future__ import annotations

from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.operators.permute import Permute


def permute(build: Builder, arguments: Permute) -> None:
    """A view; a blocked layout is first reordered to row-major."""
    tensor = build.tensor(arguments.x)
    if tensor.layout.blocks:
        tensor = build.plain(arguments.x)
    build.define(0, tensor._replace(descriptor=tensor.layout.permuted(arguments.order)))


IMPLEMENTATIONS = (Implementation(Permute, permute, refuse_integers),)

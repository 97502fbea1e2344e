"""A tensor with its axes permuted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.implementation import Implementation
from golow.lower.operators.permute import Permute

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def permute(build: Builder, arguments: Permute) -> None:
    """A view."""
    build.values.fold(build.values.folded(arguments.x).permuted(arguments.order))


IMPLEMENTATIONS = (Implementation(Permute, permute),)

"""A tensor repeated along axes of one element, and along missing axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.steps.strided_copies import repeated
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.expand import Expand

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def expand(build: Builder, arguments: Expand) -> None:
    """A view with stride zero along these axes."""
    tensor = build.values.view(arguments.x)
    build.values.look(tensor, repeated(tensor, arguments.shape).strides)


IMPLEMENTATIONS = (Implementation(Expand, expand),)

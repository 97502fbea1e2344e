"""RMSprop. No step for a single parameter: `updating` updates many at once."""

from __future__ import annotations

from golow.levels.direct.cudnn.build import updating
from golow.levels.direct.cudnn.build.builder import Builder
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.rmsprop_update import RmspropUpdate


def rmsprop_update(build: Builder, arguments: RmspropUpdate) -> None:
    """Take the settings."""
    build.updating.use(build, arguments)


IMPLEMENTATIONS = (Implementation(RmspropUpdate, rmsprop_update, updating.refuse_differing),)

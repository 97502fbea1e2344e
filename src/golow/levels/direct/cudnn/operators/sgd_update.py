"""SGD. No step for a single parameter: `updating` updates many at once."""

from __future__ import annotations

from golow.levels.direct.cudnn.build import updating
from golow.levels.direct.cudnn.build.builder import Builder
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.sgd_update import SgdUpdate


def sgd_update(build: Builder, arguments: SgdUpdate) -> None:
    """Take the settings."""
    build.updating.use(build, arguments)


IMPLEMENTATIONS = (Implementation(SgdUpdate, sgd_update, updating.refuse_differing),)

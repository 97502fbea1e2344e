"""Adam and AdamW. No step for a single parameter: `updating` updates many at once."""

from __future__ import annotations

from golow.levels.direct.cudnn.build import updating
from golow.levels.direct.cudnn.build.builder import Builder
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.adam_update import AdamStep, AdamUpdate


def adam_step(build: Builder, arguments: AdamStep) -> None:
    """Take the number of steps, which the end of the step counts in place."""
    build.inputs.state(arguments.learning_rate)
    build.updating.adam, build.updating.steps = arguments, build.inputs.state(arguments.steps)
    build.values.define(0, build.updating.steps)


def adam_update(build: Builder, arguments: AdamUpdate) -> None:
    """Take the settings."""
    build.updating.use(build, arguments)


IMPLEMENTATIONS = (
    Implementation(AdamStep, adam_step),
    Implementation(AdamUpdate, adam_update, updating.refuse_differing),
)

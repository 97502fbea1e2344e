"""The loss scale as `torch.amp.GradScaler` saves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from golow.levels.called.training.step_target import Scale
from golow.records.errors import GolowError

FACTORS = {"growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000}
# Settings of a scale that stays as it is.
FIXED = {"growth_factor": 1.0, "backoff_factor": 1.0, "growth_interval": 2000}
TRACKER = "_growth_tracker"


def scaler_state(scale: Scale | None) -> dict[str, Any]:
    """The state dict; empty if the loss is not scaled."""
    if scale is None:
        return {}
    factors = FIXED if scale.good < 0 else FACTORS
    return {"scale": scale.value, **factors, TRACKER: max(scale.good, 0)}


def given_scale(state: Mapping[str, Any], scaled: bool) -> Scale | None:
    """The loss scale of such a state; None if it has none. scaled: whether the step takes one.
    Raises `GolowError` for anything but such a state, and for other factors than golow's."""
    if not state:
        return None
    if not scaled:
        raise GolowError(
            "a state of a GradScaler was given, and this step does not scale its loss",
            'leave it out, or compile with precision="fp16".',
        )
    try:
        factors = {name: state[name] for name in FACTORS}
        value, good = float(state["scale"]), int(state[TRACKER])
    except (LookupError, TypeError, ValueError) as error:
        raise GolowError(
            f"not a state dict of torch.amp.GradScaler: {error!r}",
            "give the result of scaler.state_dict().",
        ) from error
    if factors == FIXED:
        return Scale(value, -1)
    if factors != FACTORS:
        raise GolowError(
            f"the GradScaler has {factors}",
            f"a step grows and shrinks its loss scale by GradScaler's defaults, {FACTORS}.",
        )
    return Scale(value, good)

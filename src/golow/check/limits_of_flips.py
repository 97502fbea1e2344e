"""The race's limits for a quantised network, in which rounding may decide an activation."""

from __future__ import annotations

import msgspec

from golow.check.rule import Reference, recheck
from golow.records.comparison import Check
from golow.records.workload import Workload


def rounds_activations(workload: Workload) -> bool:
    """True for a network with layers whose activations are rounded."""
    return any(layer.rounds_activations for layer in workload.source.quantized)


def with_limits_of_flips(check: Check, flipped: Reference) -> tuple[Check, str]:
    """The check of a level that matches, with limits for a race, and a note about them. The race
    has other inputs than the check, so rounding may decide other activations. flipped: the
    reference widened by one such activation at least in each layer and sample.
    """
    note = (
        "in a race, rounding may move an activation by one unit and thereby the results by "
        f"{flipped.rounding:.1%}; the race cannot see smaller errors"
    )
    return msgspec.structs.replace(check, tensors=recheck(flipped, check).tensors), note

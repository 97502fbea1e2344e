"""Requires that the same batch twice gives the same result, and states why it does not."""

from __future__ import annotations

from typing import Any

from golow.lower.capture.module_outputs import leaves_of
from golow.records.errors import GolowError
from golow.records.workload import Device
from golow.workload.forward_changes import Changes, same_values

# A GPU may sum in another order each time, which a network amplifies. Relative to the largest
# element; intended randomness is far above it.
REORDERED = 1e-3
SHOWN = 3


def require_repeatable(
    name: str, doing: str, first: Any, second: Any, device: Device, changes: Changes
) -> None:
    """Raise `GolowError` unless two results of one batch are equal. changes: of the second pass."""
    pairs = zip(leaves_of(first), leaves_of(second), strict=True)
    for one, other in pairs:
        if same_values(one, other):
            continue
        far = (one.double() - other.double()).abs().max().item()
        allowed = REORDERED * one.double().abs().max().item() if device == "cuda" else 0.0
        if not far <= allowed:  # also for NaN
            raise _unrepeatable(name, doing, far, changes)


def _unrepeatable(name: str, doing: str, far: float, changes: Changes) -> GolowError:
    """Why the same batch twice gave results that are so far apart."""
    apart = f"the same batch twice gave results that are {far:.2g} apart"
    if changes.parameters:
        names = ", ".join(changes.parameters[:SHOWN])
        return GolowError(
            f"the forward pass of {name} changes its parameters ({names}), and the next result "
            f"depends on them: {apart}",
            "change weights outside the forward pass, as after the optimizer's step.",
        )
    if changes.draws:
        return GolowError(
            f"{name} is random in {doing}, beyond dropout and the draws that golow can give to "
            f"every level: {apart}",
            "levels can only be compared when the step is repeatable; draw with functions such "
            "as torch.rand and functional.dropout, by these names, in the forward pass.",
        )
    return GolowError(
        f"{name} is not repeatable in {doing}: {apart}, though neither its weights and buffers nor "
        "the attributes of its layers had changed",
        "look for a global variable, a file or the clock that it reads.",
    )

"""Modules that change their inputs in place: the changed inputs are further outputs of the plan,
which a call writes back."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn


class _WithChanges(nn.Module):
    """A module that also returns the inputs at some places, as it leaves them."""

    golow_changed: tuple[int, ...]

    def forward(self, *inputs: Tensor) -> Any:
        """The module's output, and these inputs."""
        return super().forward(*inputs), [inputs[place] for place in self.golow_changed]


def returning_changes(module: nn.Module, changed: Sequence[int]) -> nn.Module:
    """The module as one that also returns the inputs at these places. It shares layers and weights
    with the given one, which stays as it is."""
    if not changed:
        return module
    view, own = copy.copy(module), type(module)
    view.golow_changed = tuple(changed)  # type: ignore[assignment]
    names = {"__module__": own.__module__, "__qualname__": own.__qualname__}
    view.__class__ = type(own.__name__, (_WithChanges, own), names)
    return view


def places_changed(before: Sequence[int], inputs: Sequence[Tensor]) -> set[int]:
    """The places of inputs that were written since they had these versions."""
    return {
        place
        for place, (version, item) in enumerate(zip(before, inputs, strict=True))
        if item._version != version
    }

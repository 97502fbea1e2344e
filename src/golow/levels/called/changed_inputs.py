"""Modules that change their inputs in place: the changed inputs are further outputs of the plan,
which a call writes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from golow.levels.called.module_view import view_of


class _WithChanges(nn.Module):
    """A module that also returns the inputs at some places, as it leaves them."""

    golow_returned: tuple[int, ...]

    def forward(self, *inputs: Tensor) -> Any:
        """The module's output, and these inputs."""
        return super().forward(*inputs), [inputs[place] for place in self.golow_returned]


def returning_changes(module: nn.Module, changed: Sequence[int]) -> nn.Module:
    """The module as one that also returns the inputs at these places, a view of the given one."""
    if not changed:
        return module
    view, own = view_of(module), type(module)
    names = {
        "__module__": own.__module__,
        "__qualname__": own.__qualname__,
        "golow_returned": tuple(changed),
    }
    view.__class__ = type(own.__name__, (_WithChanges, own), names)
    return view


def places_changed(before: Sequence[int], inputs: Sequence[Tensor]) -> set[int]:
    """The places of inputs that were written since they had these versions."""
    return {
        place
        for place, (version, item) in enumerate(zip(before, inputs, strict=True))
        if item._version != version
    }

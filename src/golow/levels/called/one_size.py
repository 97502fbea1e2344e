"""The lowered graph of one batch size, and the arrays that its plan reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from golow.levels.called.module_view import view_of
from golow.levels.direct.bundle_arrays import Read
from golow.lower.ir.graph import Graph
from golow.workload.keywords import accept_keywords


class OneSize(NamedTuple):
    """A graph after a level's passes, and the tensors besides weights that it reads."""

    graph: Graph
    constants: Mapping[str, Tensor]

    def reading(self, state: Mapping[str, Tensor], array: Callable[[Tensor], Any]) -> Read:
        """Return what gives a plan its parameters and buffers from a state dict. array: a tensor as
        the level's plans take it."""

        def read(kind: str, target: str) -> Any:
            return array((self.constants[target] if kind == "constant" else state[target]).detach())

        return read


def by_position(module: nn.Module, keywords: tuple[str, ...]) -> nn.Module:
    """The module as one that takes a tuple of inputs, a view of the given one."""
    if not keywords:
        return module
    view = view_of(module)
    accept_keywords(view, keywords, {})
    return view

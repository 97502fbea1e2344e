"""Work done once, while a plan is loaded: steps whose results are the same in every iteration,
and what NumPy computes from weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.node import CurrentNode
from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


class Loading:
    """once: whether the steps that are being added run only when loading. constants: what NumPy
    computes, by the value's name; made: what it reads of the results of steps."""

    def __init__(self, current: CurrentNode) -> None:
        self._current = current
        self.once = False
        self.constants: dict[str, Operator] = {}
        self.made: dict[str, Tensor] = {}

    @contextmanager
    def of(self, *names: str) -> Iterator[None]:
        """Steps that are added within run only when loading if these values are the same in every
        iteration."""
        before = self.once
        self.once = before or (bool(names) and self._current.constants.issuperset(names))
        try:
            yield
        finally:
            self.once = before


def compute_when_loading(build: Builder, operator: Operator) -> None:
    """Compute the current node's value while loading: it depends only on weights, or on what steps
    make of them before."""
    build.loading.constants[build.current.output().name] = operator
    for name in build.current.node.references():
        if not build.inputs.is_outside(name):
            build.loading.made[name] = build.values.tensor(Ref(name=name))

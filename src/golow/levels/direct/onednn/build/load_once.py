"""Steps that run once, while a plan for inference is loaded: what depends on weights alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.weight_arithmetic import computed
from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator


@dataclass(frozen=True)
class Computed:
    """Function of an operator that reads arrays with these names in the graph and writes the last
    one."""

    operator: Operator
    names: tuple[str, ...]

    def __call__(self, *arrays: Any) -> None:
        """Compute it."""
        *found, target = arrays
        target[...] = computed(self.operator, dict(zip(self.names, found, strict=True)).__getitem__)


def compute_when_loading(build: Builder, operator: Operator) -> None:
    """Add a step on row-major arrays."""
    names = tuple(dict.fromkeys(build.current.node.references()))
    tensors = [build.values.plain(Ref(name=name)) for name in names]
    output = build.current.output()
    result = build.memory.new(output.name, output.shape, Descriptor.plain(output.shape))
    build.steps.array_call(Computed(operator, names), tensors, [result])
    build.values.define(0, result)

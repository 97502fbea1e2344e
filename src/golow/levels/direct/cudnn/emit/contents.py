"""Content of memory from loading on, as expressions of loading.h."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from golow.levels.direct.bundle_arrays import Read
from golow.levels.direct.cudnn.run.device_array import DeviceArray
from golow.levels.direct.cudnn.steps.built_plan import Built, Tensor
from golow.levels.direct.emit.constants import Constants
from golow.levels.direct.emit.spelling import listed, single, text
from golow.lower.ir.graph import GraphInput, Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.folded_batch_norm import FoldedBias, FoldedWeight
from golow.lower.operators.joined_weight import JoinedWeight
from golow.lower.operators.trimmed_weight import TrimmedWeight

TYPES = {
    "float32": "float32", "bfloat16": "bfloat16", "float16": "float16", "int64": "int64",
    "int32": "int32", "bool": "bool8", "uint8": "uint8",
}  # fmt: skip


def storage(tensor: Tensor) -> str:
    """How a tensor is stored."""
    strides = tensor.layout.strides(tensor.shape)
    fields = f"Type::{TYPES[tensor.dtype]}", listed(tensor.shape), listed(strides)
    return listed((*fields, tensor.layout.extent(tensor.shape)))


class Contents:
    """Spells values. sources: the graph's inputs by the names of their values. read: constants.
    value: of a tensor, in C++. weights: the names of those that were spelled."""

    def __init__(
        self,
        built: Built,
        sources: Mapping[str, GraphInput],
        read: Read,
        constants: Constants,
        value: Callable[[Tensor], str],
    ) -> None:
        self._built, self._sources, self._read = built, sources, read
        self._constants, self._value = constants, value
        self.weights: list[str] = []

    def of(self, wanted: str | float) -> str:
        """A value of the graph that depends on weights alone, or a number."""
        if isinstance(wanted, float):
            return f"number({single(float(np.float32(wanted)))})"
        if (source := self._sources.get(wanted)) is not None:
            if source.kind == "constant":
                return f"constant({text(self._constants.add(source.target, self._array(source)))})"
            self.weights.append(source.target)
            return f"weight({text(source.target)})"
        if (made := self._built.made.get(wanted)) is not None:
            return f"made({self._value(made)}, {storage(made)})"
        return self._computed(self._built.constants[wanted])

    def _array(self, source: GraphInput) -> np.ndarray:
        found = self._read(source.kind, source.target)
        return found.host() if isinstance(found, DeviceArray) else found

    def _computed(self, operator: Operator) -> str:
        def given(reference: Ref | None) -> str:
            return "nullptr" if reference is None else self.of(reference.name)

        match operator:
            case FoldedWeight():
                fields = operator.weight, operator.scale, operator.variance
                return f"folded_weight({', '.join(map(given, fields))}, {operator.epsilon!r})"
            case FoldedBias():
                of = operator
                five = of.bias, of.scale, of.shift, of.mean, of.variance
                return f"folded_bias({', '.join(map(given, five))}, {operator.epsilon!r})"
            case TrimmedWeight():
                taps = f"{listed(operator.rows)}, {listed(operator.columns)}"
                return f"trimmed_weight({given(operator.weight)}, {taps})"
            case JoinedWeight():
                return f"joined_weight({listed(map(given, operator.parts))})"
        raise ValueError(f"{operator.op()} has no form in C++")

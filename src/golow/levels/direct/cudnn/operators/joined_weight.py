"""The weights, or the biases, of layers that are computed as one. In inference they are joined
while a plan is loaded. In training they are side by side in memory, so that nothing is joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.build.load_once import compute_when_loading
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES, OF_8_BITS
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.implementation import Implementation
from golow.lower.ir.graph import Ref
from golow.lower.operators.joined_weight import JoinedWeight

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def joined_weight(build: Builder, arguments: JoinedWeight) -> None:
    """Copy the parts only where training keeps them apart: in several groups of parameters."""
    weight = build.current.output()
    if build.current.is_constant(Ref(name=weight.name)):
        compute_when_loading(build, arguments)
        return
    whole = build.training.joined(weight, build.types.computed)
    build.values.define(0, _copied(build, arguments) if whole is None else whole)


def _copied(build: Builder, arguments: JoinedWeight) -> Tensor:
    value, layout = build.current.output(), Layout(build.types.computed)
    whole, offset = build.memory.new(value.name, value.shape, layout), 0
    pairs = []
    for reference in arguments.parts:
        part = build.values.wanted(reference, layout)
        pairs.append((part, whole._replace(shape=part.shape, offset=offset)))
        offset += part.elements * ITEM_BYTES[layout.dtype]
    build.values.copy_each(pairs)
    return whole


IMPLEMENTATIONS = (Implementation(JoinedWeight, joined_weight, reads=OF_8_BITS),)

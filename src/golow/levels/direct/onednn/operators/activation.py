"""An activation on its own, and its gradient. The functions are in ``activations/``."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.constants import (
    DIFF_DST,
    DIFF_SRC,
    DST,
    ELTWISE,
    FORWARD_TRAINING,
    SRC,
)
from golow.levels.direct.onednn.bindings.library import number
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.build.refusing import without_algorithm
from golow.levels.direct.onednn.steps.eltwise import apply, functions_of_elements, post_op
from golow.levels.direct.refusing import refuse_integers
from golow.lower.operators.activation import Activate, ActivateBackward


def activate(build: Builder, arguments: Activate) -> None:
    """Add a separate step, for an activation that is not fused into the step before it."""
    apply(build, arguments.x, post_op(arguments.activation), arguments.activation.name)


def activate_backward(build: Builder, arguments: ActivateBackward) -> None:
    """gradient * activation', from the activation's result or its argument."""
    value = build.values.tensor(arguments.value)
    outer = build.values.wanted(arguments.gradient, value.layout)
    setting = post_op(arguments.activation)
    ending, reads = ("_use_dst_for_bwd", DST) if arguments.from_result else ("", SRC)
    algorithm = ELTWISE[setting.kind + ending]
    numbers = number(setting.alpha), number(setting.beta)
    forward = Primitive(
        build.engine, "eltwise_forward", FORWARD_TRAINING, algorithm, value.layout, value.layout,
        *numbers,
    )  # fmt: skip
    primitive = Primitive(
        build.engine, "eltwise_backward", algorithm, outer.layout, outer.layout, value.layout,
        *numbers, forward.description,
    )  # fmt: skip
    inner = build.values.in_place_or_new(arguments.gradient, outer)
    build.steps.call(primitive, {DIFF_DST: outer, reads: value}, {DIFF_SRC: inner})
    build.values.define(0, inner)


def _refuse(arguments: Activate | ActivateBackward, question: Question) -> str:
    integers = refuse_integers(arguments, question)
    return integers or without_algorithm(question, arguments.activation)


def _refuse_backward(arguments: ActivateBackward, question: Question) -> str:
    if missing := _refuse(arguments, question):
        return missing
    name = arguments.activation.name
    if arguments.from_result and not functions_of_elements()[name].from_result:
        return f"{question.node.op} of {name} from its result"
    return ""


IMPLEMENTATIONS = (
    Implementation(Activate, activate, _refuse),
    Implementation(ActivateBackward, activate_backward, _refuse_backward),
)

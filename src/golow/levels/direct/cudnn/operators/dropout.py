"""Dropout and its gradient. Random numbers are a function of seed, step and element."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels.dropout import (
    PROBABILITY_OFFSET,
    forward_kernel,
    mask_kernel,
)
from golow.levels.direct.cudnn.shared_kernels.pointwise import Operand, pointwise
from golow.levels.direct.cudnn.steps.built_plan import Cell, Tensor
from golow.levels.direct.formulas.literals import number
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.refusing import not_floating, not_made_by
from golow.lower.ir.graph import Ref
from golow.lower.operators.dropout import Dropout, DropoutBackward

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


class Control(NamedTuple):
    """A note on a mask: the cell that controlled its random numbers."""

    cell: Tensor


def dropout(build: Builder, arguments: Dropout) -> None:
    """Set elements of x to zero at random and scale up the others; also define the mask."""
    control = build.memory.cell(Cell("dropout", arguments.probability))
    if not build.current.is_read(0):
        _draw(build, control)
        return
    source = build.values.tensor(arguments.x)
    layout = source.layout._replace(dtype="bool")
    mask = build.memory.new(f"{build.current.name}.mask", source.shape, layout)
    result = build.memory.new(build.current.output().name, source.shape, source.layout)
    kernel = forward_kernel(source.dtype, source.elements, build.current.position)
    build.steps.kernel(kernel, [source, control], [result, mask])
    build.values.define(0, result)
    build.values.define(1, mask)
    if build.current.is_read(1):
        build.current.note(build.current.output(1).name, Control(control))


def _draw(build: Builder, control: Tensor) -> None:
    """The mask alone: nothing is read."""
    mask = build.values.result(1, Layout("bool"))
    kernel = mask_kernel(mask.elements, build.current.position)
    build.steps.kernel(kernel, [control], [mask])
    build.values.define(1, mask)
    build.current.note(build.current.output(1).name, Control(control))


def dropout_backward(build: Builder, arguments: DropoutBackward) -> None:
    """The gradient where the mask kept the value, scaled like the value. A mask from outside the
    graph was not drawn here."""
    kept = build.values.tensor(arguments.mask)
    layout = kept.layout._replace(dtype=build.types.computed)
    outer = build.values.wanted(arguments.gradient, layout)
    result = build.memory.new(build.current.output().name, outer.shape, outer.layout)
    if build.current.found_note(arguments.mask.name, Control) is None:
        operands = [Operand(outer.dtype), Operand("bool")]
        scaled = f"b ? a * {number(arguments.scale)} : 0.0f"
        kernel = pointwise([scaled], operands, [result.dtype], result.elements)
        build.steps.kernel(kernel, [outer, kept], [result])
        build.values.define(0, result)
        return
    probability = probability_of(build, arguments.mask)
    operands = [Operand(outer.dtype), Operand("bool"), Operand("float32", "scalar")]
    kernel = pointwise(["c < 1.0f ? a * b / (1.0f - c) : 0.0f"], operands, [result.dtype],
                       result.elements)  # fmt: skip
    build.steps.kernel(kernel, [outer, kept, probability], [result])
    build.values.define(0, result)


def probability_of(build: Builder, mask: Ref) -> Tensor:
    """The probability with which a mask that was drawn here is drawn currently, which is zero while
    the levels are compared."""
    drawn = build.current.found_note(mask.name, Control)
    if drawn is None:
        raise LookupError(f"{mask.name} was not drawn here")
    layout = Layout("float32")
    return drawn.cell._replace(shape=(), layout=layout, offset=PROBABILITY_OFFSET)


def _refuse(arguments: Dropout, question: Question) -> str:
    return not_floating(question, arguments.x)


def _refuse_backward(arguments: DropoutBackward, question: Question) -> str:
    given = any(item.value.name == arguments.mask.name for item in question.graph.inputs)
    return "" if given else not_made_by(question, arguments.mask, Dropout)


IMPLEMENTATIONS = (
    Implementation(Dropout, dropout, _refuse),
    Implementation(DropoutBackward, dropout_backward, _refuse_backward),
)

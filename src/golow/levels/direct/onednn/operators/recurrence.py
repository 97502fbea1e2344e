"""A layer of an LSTM, a GRU or a plain recurrent network in one direction, by one primitive."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.constants import (
    BIAS,
    DIFF_BIAS,
    DIFF_DST,
    DIFF_DST_ITER,
    DIFF_DST_ITER_C,
    DIFF_SRC,
    DIFF_SRC_ITER,
    DIFF_SRC_ITER_C,
    DIFF_WEIGHTS,
    DIFF_WEIGHTS_ITER,
    DIFF_WEIGHTS_PROJECTION,
    DST,
    DST_ITER,
    DST_ITER_C,
    SRC,
    SRC_ITER,
    SRC_ITER_C,
    WEIGHTS,
    WEIGHTS_ITER,
    WEIGHTS_PROJECTION,
    WORKSPACE,
)
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.recurrent import (
    Sizes,
    backward_primitive,
    bias,
    bias_gradients,
    bias_layout,
    forward_primitive,
    projection,
    projection_gradient,
    sizes_of,
    state_layout,
    weight,
    weight_gradient,
)
from golow.levels.direct.refusing import not_made_by, refuse_integers
from golow.lower.ir.graph import Ref
from golow.lower.operators.recurrence import Recurrence, RecurrenceBackward
from golow.lower.plan.memory_traffic import SCRATCH

GIVEN = ("x", "hidden", "cell", "input_weight", "hidden_weight", "input_bias", "hidden_bias",
         "projection")  # fmt: skip
"""The order of the gradients."""


class Kept(NamedTuple):
    """State that forward saves for backward: its primitive, its arguments by number, and the
    library's own record of every step. last: whether the last states are among them."""

    primitive: Primitive
    arguments: dict[int, Tensor]
    workspace: Tensor
    last: bool


def recurrence(build: Builder, arguments: Recurrence) -> None:
    """Define the results of all steps, and the cell's last state if it is read."""
    sizes = sizes_of(build, arguments, last=build.current.is_read(1))
    primitive = forward_primitive(build, sizes)
    states, weights = _states(build, arguments, sizes), _weights(build, arguments, primitive, sizes)
    shape = (sizes.steps, sizes.rows, sizes.results)
    writes = {DST: build.memory.new(build.current.output_name(0), shape, Descriptor.plain(shape))}
    if sizes.last:
        writes |= {
            DST_ITER: _state(build, "last", sizes, sizes.results),
            DST_ITER_C: _state(build, "last_cell", sizes, sizes.hidden),
        }
    results = dict(writes)
    if build.current.trains:
        record = primitive.layout_of(WORKSPACE)
        name = f"{build.current.name}.workspace"
        writes[WORKSPACE] = build.memory.new(name, (record.bytes,), record, "uint8")
        kept = Kept(primitive, states | results, writes[WORKSPACE], sizes.last)
        build.current.note(build.current.output_name(0), kept)
    build.steps.call(primitive, weights | states, writes)
    build.values.define(0, results[DST])
    if sizes.last:
        _define_state(build, 1, results[DST_ITER_C])


def recurrence_backward(build: Builder, arguments: RecurrenceBackward) -> None:
    """Define the gradients of all that the layer reads."""
    kept = build.current.noted(arguments.output, Kept)
    sizes = sizes_of(build, arguments, kept.last)
    primitive = backward_primitive(build, sizes, kept.primitive)
    reads = {
        **_weights(build, arguments, primitive, sizes),
        **kept.arguments,
        WORKSPACE: kept.workspace,
        DIFF_DST: build.values.plain(arguments.gradient),
    }
    if sizes.last:
        of_cell = arguments.last_gradient
        zero = _zeros(build, "no_gradient", sizes, sizes.results)
        no_cell = zero if sizes.results == sizes.hidden else None
        reads[DIFF_DST_ITER] = zero
        reads[DIFF_DST_ITER_C] = (
            _as_state(build, of_cell, sizes, sizes.hidden)
            if of_cell is not None
            else no_cell or _zeros(build, "no_cell_gradient", sizes, sizes.hidden)
        )
    writes = _gradients(build, arguments, primitive, sizes)
    build.steps.call(primitive, reads, writes)
    _define_gradients(build, writes, sizes)


# ---------------------------------------------------------------- arguments


def _states(
    build: Builder, arguments: Recurrence | RecurrenceBackward, sizes: Sizes
) -> dict[int, Tensor]:
    found = {
        SRC: build.values.plain(arguments.x),
        SRC_ITER: _as_state(build, arguments.hidden, sizes, sizes.results),
    }
    if arguments.cell is not None:
        found[SRC_ITER_C] = _as_state(build, arguments.cell, sizes, sizes.hidden)
    return found


def _as_state(build: Builder, reference: Ref, sizes: Sizes, width: int) -> Tensor:
    return build.values.plain(reference)._replace(descriptor=state_layout(sizes, width))


def _state(build: Builder, name: str, sizes: Sizes, width: int) -> Tensor:
    layout = state_layout(sizes, width)
    return build.memory.new(f"{build.current.name}.{name}", layout.shape, layout)


def _zeros(build: Builder, name: str, sizes: Sizes, width: int) -> Tensor:
    layout = state_layout(sizes, width)
    zeros = np.zeros(layout.shape, np.float32)
    return build.memory.constant(f"{build.current.name}.{name}", zeros)._replace(descriptor=layout)


def _weights(
    build: Builder,
    arguments: Recurrence | RecurrenceBackward,
    primitive: Primitive,
    sizes: Sizes,
) -> dict[int, Tensor]:
    of_input, of_hidden = primitive.layout_of(WEIGHTS), primitive.layout_of(WEIGHTS_ITER)
    found = {
        WEIGHTS: weight(build, arguments.input_weight, sizes, of_input),
        WEIGHTS_ITER: weight(build, arguments.hidden_weight, sizes, of_hidden),
        BIAS: bias(build, arguments.input_bias, arguments.hidden_bias, sizes),
    }
    if arguments.projection is not None:
        layout = primitive.layout_of(WEIGHTS_PROJECTION)
        found[WEIGHTS_PROJECTION] = projection(build, arguments.projection, layout)
    return found


# ---------------------------------------------------------------- gradients


def _gradients(
    build: Builder, arguments: RecurrenceBackward, primitive: Primitive, sizes: Sizes
) -> dict[int, Tensor]:
    """Memory for every gradient, as the library gives it. It computes all of them."""
    x = (sizes.steps, sizes.rows, sizes.inputs)
    found = {
        DIFF_SRC: build.memory.new(build.current.output_name(0), x, Descriptor.plain(x)),
        DIFF_SRC_ITER: _state(build, "hidden_gradient", sizes, sizes.results),
        DIFF_WEIGHTS: _memory(build, primitive.layout_of(DIFF_WEIGHTS)),
        DIFF_WEIGHTS_ITER: _memory(build, primitive.layout_of(DIFF_WEIGHTS_ITER)),
        DIFF_BIAS: _memory(build, bias_layout(sizes)),
    }
    if arguments.cell is not None:
        found[DIFF_SRC_ITER_C] = _state(build, "cell_gradient", sizes, sizes.hidden)
    if sizes.projected:
        found[DIFF_WEIGHTS_PROJECTION] = _memory(
            build, primitive.layout_of(DIFF_WEIGHTS_PROJECTION)
        )
    return found


def _memory(build: Builder, layout: Descriptor) -> Tensor:
    return build.memory.new(f"{build.current.name}{SCRATCH}", layout.shape, layout)


def _define_gradients(build: Builder, made: dict[int, Tensor], sizes: Sizes) -> None:
    build.values.define(0, made[DIFF_SRC])
    for name, argument in (("hidden", DIFF_SRC_ITER), ("cell", DIFF_SRC_ITER_C)):
        if build.current.is_read(GIVEN.index(name)):
            _define_state(build, GIVEN.index(name), made[argument])
    weights = (("input_weight", DIFF_WEIGHTS), ("hidden_weight", DIFF_WEIGHTS_ITER))
    for name, argument in weights:
        if build.current.is_read(GIVEN.index(name)):
            weight_gradient(build, GIVEN.index(name), made[argument], sizes)
    first, last = GIVEN.index("input_bias"), GIVEN.index("projection")
    if build.current.is_read(first) or build.current.is_read(first + 1):
        bias_gradients(build, first, made[DIFF_BIAS], sizes)
    if build.current.is_read(last):
        projection_gradient(build, last, made[DIFF_WEIGHTS_PROJECTION])


def _define_state(build: Builder, index: int, state: Tensor) -> None:
    """A state [N, H] without the axes of layer and direction."""
    plain = Descriptor.plain(build.current.output(index).shape)
    build.values.define(index, state._replace(descriptor=plain))


def _refuse_backward(arguments: RecurrenceBackward, question: Question) -> str:
    integers = refuse_integers(arguments, question)
    return integers or not_made_by(question, arguments.output, Recurrence)


IMPLEMENTATIONS = (
    Implementation(Recurrence, recurrence, refuse_integers),
    Implementation(RecurrenceBackward, recurrence_backward, _refuse_backward),
)

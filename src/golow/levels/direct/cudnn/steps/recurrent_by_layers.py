"""The steps of a recurrent network that golow's own kernel computes, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.cudnn.engines.golow_recurrence import input_product, layer_of, number_of
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.problems.recurrent_network import Parameter, RecurrentNetwork
from golow.levels.direct.cudnn.shared_kernels.elements import elements
from golow.levels.direct.cudnn.shared_kernels.recurrent import Slices, recurrent
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.kernel_views import View
from golow.lower.ir.graph import Ref
from golow.lower.operators.recurrent_layers import RecurrentLayers

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

STEP = "recurrent_layer"
BIASES: tuple[Parameter, Parameter] = ("input_bias", "hidden_bias")


def by_layers(
    build: Builder,
    arguments: RecurrentLayers,
    problem: RecurrentNetwork,
    ends: Sequence[Mapping[Parameter, Ref]],
    found: Slices,
) -> None:
    """Define the results of all steps, and the last states that are read. ends: the parameters of
    each layer and side."""
    rows, lstm = Layout(problem.dtype), arguments.cell is not None
    words = zeros(build, layer_of(problem).words)
    x, hidden = build.values.wanted(arguments.x, rows), build.values.wanted(arguments.hidden, rows)
    cell = build.values.wanted(arguments.cell, rows) if arguments.cell is not None else None
    lasts = [
        build.values.result(index, rows)
        if index <= 1 + lstm and build.current.is_read(index)
        else None
        for index in (1, 2)
    ]
    shape = (*build.current.value(arguments.x).shape[:2], problem.sides * problem.hidden)
    for index in range(problem.layers):
        is_last = index + 1 == problem.layers and build.current.is_read(0)
        y = (
            build.values.result(0, rows)
            if is_last
            else build.memory.new(f"{build.current.name}.y", shape, rows)
        )
        sides = ends[index * problem.sides : (index + 1) * problem.sides]
        given = weighed(build, problem, index, sides, x)
        first, first_cell, last, last_cell = (
            None if states is None else of_layer(states, index, problem)
            for states in (hidden, cell, *lasts)
        )
        kernel = recurrent(layer_of(problem), found, number_of(problem, index))
        read = [given.inputs, given.hidden_weight, *given.biases, first, first_cell]
        build.steps.kernel(kernel, read, [y, None, None, last, last_cell, words], STEP)
        x = y
    for index, tensor in enumerate((x, *lasts)):
        if tensor is not None and build.current.is_read(index):
            build.values.define(index, tensor)


class Weighed(NamedTuple):
    """Product of a layer's input for its gates; and the parameters of all its sides, one after the
    other."""

    inputs: Tensor
    input_weight: Tensor
    hidden_weight: Tensor
    biases: tuple[Tensor | None, Tensor | None]


def weighed(
    build: Builder,
    problem: RecurrentNetwork,
    index: int,
    sides: Sequence[Mapping[Parameter, Ref]],
    x: Tensor,
) -> Weighed:
    """Add the product of a layer's input. sides: its parameters."""
    rows, exact = Layout(problem.dtype), Layout("float32")
    product = input_product(problem, index)
    inputs = build.memory.new(f"{build.current.name}.inputs", (product.m * product.n,), exact)
    weight = _stacked(build, sides, "input_weight", rows)
    build.steps.engine(build.engine_for(product), [x, weight], [inputs], "input_product")
    one, other = (
        _stacked(build, sides, name, exact) if problem.biased else None for name in BIASES
    )
    return Weighed(inputs, weight, _stacked(build, sides, "hidden_weight", rows), (one, other))


def zeros(build: Builder, words: int) -> Tensor:
    """Memory of this many words of 8 bytes, in which nothing has a number."""
    made = build.memory.scratch(2 * words, "int32")
    zero = elements("0", [], View("int32", (1,)), (2 * words,), "int64")
    build.steps.kernel(zero, [], [made], "zero")
    return made


def of_layer(states: Tensor, index: int, problem: RecurrentNetwork) -> Tensor:
    """A layer's part [sides, rows, units] of the states of all layers."""
    shape = (problem.sides, problem.rows, problem.hidden)
    size = ITEM_BYTES[states.dtype] * problem.sides * problem.rows * problem.hidden
    return states._replace(shape=shape, offset=states.offset + index * size)


def _stacked(
    build: Builder, sides: Sequence[Mapping[Parameter, Ref]], name: Parameter, layout: Layout
) -> Tensor:
    """A parameter of all sides, one after the other: put together when loading."""
    if len(sides) == 1:
        return build.values.wanted(sides[0][name], layout)
    references = [side[name] for side in sides]
    shape = build.current.value(references[0]).shape
    with build.loading.of(*(reference.name for reference in references)):
        stack = build.memory.new(f"{build.current.name}.{name}", (len(sides), *shape), layout)
        for index, reference in enumerate(references):
            offset = stack.offset + index * layout.bytes(shape)
            build.values.copy(
                build.values.wanted(reference, layout), stack._replace(shape=shape, offset=offset)
            )
    return stack

"""Recurrent networks, by cuDNN or by golow's own kernels, whichever are faster: as a whole in
inference; in training as far as nothing else reads what is between layers and directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.cudnn.build.weights import is_frozen
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import Layout, same_memory
from golow.levels.direct.cudnn.problems.recurrent_network import (
    OfResults,
    Operand,
    Parameter,
    RecurrentNetwork,
    States,
    Wanted,
)
from golow.levels.direct.cudnn.steps import recurrent_by_library, recurrent_training
from golow.levels.direct.cudnn.steps.built_plan import Tensor, is_aligned
from golow.levels.direct.cudnn.steps.recurrent_by_layers import by_layers
from golow.levels.direct.cudnn.steps.recurrent_by_library import batch_major
from golow.levels.direct.cudnn.steps.strided_copies import copy, whole
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.kernel_views import View
from golow.levels.direct.refusing import not_made_by, refuse_integers
from golow.lower.ir.graph import Ref
from golow.lower.operators.recurrence import GATES, Cell, Recurrence, RecurrenceBackward
from golow.lower.operators.recurrent_layers import RecurrentLayers
from golow.lower.operators.recurrent_stack import RecurrentStack, RecurrentStackBackward
from golow.lower.plan.memory_traffic import SCRATCH

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

PARAMETERS: tuple[Parameter, ...] = (
    "input_weight", "hidden_weight", "input_bias", "hidden_bias", "projection",
)  # fmt: skip
"""Parameters of a layer, in PyTorch's order."""


class Kept(NamedTuple):
    """Tensors that forward saves for backward."""

    found: recurrent_training.Layers | recurrent_by_library.Call


# ---------------------------------------------------------------- inference


def recurrent_layers(build: Builder, arguments: RecurrentLayers) -> None:
    """Define the results of all steps, and the last states that are read."""
    problem, rows = _whole(build, arguments), Layout(build.types.computed)
    count_of_ends, left = problem.layers * problem.sides, iter(arguments.weights)
    names = [tuple(problem.parameters(i // problem.sides)) for i in range(count_of_ends)]
    ends = [{name: next(left) for name in one} for one in names]
    if all(is_frozen(build, weight) for weight in arguments.weights):
        found = build.engines.own_recurrence(problem)
        if found is not None:
            by_layers(build, arguments, problem, ends, found.forward)
            return
    x, hidden = build.values.wanted(arguments.x, rows), build.values.wanted(arguments.hidden, rows)
    cell = None if arguments.cell is None else build.values.wanted(arguments.cell, rows)
    lasts = [
        build.values.result(index, rows)
        if index < arguments.results and build.current.is_read(index)
        else None
        for index in (1, 2)
    ]
    shape = (*build.current.value(arguments.x).shape[:2], problem.sides * problem.results)
    y = build.values.result(0, rows) if build.current.is_read(0) else _scratch(build, shape)
    states = States(hidden, cell, lasts[1])
    recurrent_by_library.forward(build, problem, ends, states, x, y, lasts[0])
    for index, tensor in enumerate((y, *lasts)):
        if tensor is not None and build.current.is_read(index):
            build.values.define(index, tensor)


def _whole(build: Builder, arguments: RecurrentLayers) -> RecurrentNetwork:
    shape, types = build.current.value(arguments.x).shape, build.types
    rows, steps = shape[:2] if arguments.batch_first else shape[1::-1]
    results = build.current.value(arguments.hidden).shape[2]
    cell = arguments.cell
    return RecurrentNetwork(
        kind=arguments.kind,
        layers=arguments.layers,
        sides=2 if arguments.bidirectional else 1,
        steps=steps,
        rows=rows,
        inputs=shape[2],
        hidden=results if cell is None else build.current.value(cell).shape[2],
        results=results,
        biased=arguments.biased,
        batch_major=arguments.batch_first,
        dtype=types.computed,
        arithmetic=types.convolutions,  # one setting of PyTorch permits TF32 to both
        trains=False,
    )


# ---------------------------------------------------------------- training


def recurrence(build: Builder, arguments: Recurrence) -> None:
    """Define the results of all steps, and the cell's last state if it is read. Backwards, time is
    turned before and after."""
    cells = () if arguments.cell is None else (arguments.cell,)
    ends, states = [_parameters(arguments)], ((arguments.hidden,), cells)
    _define_layers(build, arguments, ends, states, backwards=arguments.backwards)


def recurrent_stack(build: Builder, arguments: RecurrentStack) -> None:
    """Define the results of all steps of the last layer."""
    states, sides = (arguments.hidden, arguments.cell), 2 if arguments.bidirectional else 1
    _define_layers(build, arguments, _by_end(arguments), states, sides)


def _define_layers(
    build: Builder,
    arguments: Recurrence | RecurrentStack,
    ends: Sequence[Mapping[Parameter, Ref]],
    firsts: tuple[Sequence[Ref], Sequence[Ref]],
    sides: int = 1,
    backwards: bool = False,
) -> None:
    """Define the results. ends: the parameters of each layer and side; firsts: their hidden states
    and cells."""
    x, rows = _steps_of(build, arguments.x, backwards), Layout(build.types.computed)
    problem = _layers(build, arguments.kind, ends, sides, x)
    hidden = _stacked(build, "hidden", firsts[0])
    cell = _stacked(build, "cell", firsts[1]) if firsts[1] else None
    is_read = len(build.current.node.outputs) > 1 and build.current.is_read(1)
    states = States(hidden, cell, build.values.result(1, rows) if is_read else None)
    shares = build.engines.own_recurrence(problem) if problem.trains else None
    made: tuple[Tensor, recurrent_training.Layers | recurrent_by_library.Call]
    if shares is not None:
        x = x if backwards else build.values.wanted(arguments.x, rows)
        made = recurrent_training.forward(build, problem, shares, ends, states, x)
    else:
        made = recurrent_by_library.forward(build, problem, ends, states, x)
    y, found = made
    if states.last_cell is not None:
        build.values.define(1, states.last_cell)
    if not build.current.is_read(0):
        return
    build.current.note(build.current.output().name, Kept(found))
    if backwards:
        y = _turned(build, y, build.memory.new(f"{build.current.name}.turned", y.shape, rows))
    build.values.define(0, y)


class Results(NamedTuple):
    """Which of a node's results are the gradients of the states and parameters of each layer
    and side."""

    hidden: Sequence[int]
    cell: Sequence[int]
    parameters: Sequence[Mapping[Parameter, int]]


def recurrence_backward(build: Builder, arguments: RecurrenceBackward) -> None:
    """Define the gradients that are read."""
    cell = () if arguments.cell is None else (2,)
    parameters = {name: 3 + index for index, name in enumerate(PARAMETERS)}
    results = Results((1,), cell, [parameters])
    _define_gradients(build, arguments, results, arguments.last_gradient, arguments.backwards)


def recurrent_stack_backward(build: Builder, arguments: RecurrentStackBackward) -> None:
    """Define the gradients that are read."""
    left = count(1)
    hidden, cell = (tuple(islice(left, len(s))) for s in (arguments.hidden, arguments.cell))
    parameters = [{name: next(left) for name in layer} for layer in _by_end(arguments)]
    _define_gradients(build, arguments, Results(hidden, cell, parameters))


def _define_gradients(
    build: Builder,
    arguments: RecurrenceBackward | RecurrentStackBackward,
    results: Results,
    last_gradient: Ref | None = None,
    backwards: bool = False,
) -> None:
    found, rows = build.current.noted(arguments.output, Kept).found, Layout(build.types.computed)
    problem, gradient = found.problem, build.values.wanted(arguments.gradient, found.order)
    if backwards:
        gradient = _turned(build, gradient, _scratch(build, gradient.shape))
    of_x = None
    if build.current.is_read(0):
        shape = (problem.steps, problem.rows, problem.inputs)
        of_x = _scratch(build, shape) if backwards else build.values.result(0, found.x_order)
    hidden = _of_states(build, problem, "hidden", results.hidden)
    cell = _of_states(build, problem, "cell", results.cell)
    last = None if last_gradient is None else build.values.wanted(last_gradient, rows)
    found.gradients(
        build, OfResults(gradient, last), Wanted(hidden, cell, of_x, results.parameters)
    )
    if of_x is not None:
        build.values.define(
            0, _turned(build, of_x, build.values.result(0, rows)) if backwards else of_x
        )
    for made, indices in ((hidden, results.hidden), (cell, results.cell)):
        if made is not None:
            _define_parts(build, made, indices)


def _of_states(
    build: Builder, problem: RecurrentNetwork, name: str, indices: Sequence[int]
) -> Tensor | None:
    """Memory for the gradients of all layers' states, if any of them is read."""
    if not any(map(build.current.is_read, indices)):
        return None
    width = problem.results if name == "hidden" else problem.hidden
    shape = (problem.layers * problem.sides, problem.rows, width)
    return build.memory.new(
        f"{build.current.name}.{name}_gradient", shape, Layout(build.types.computed)
    )


def _define_parts(build: Builder, whole: Tensor, indices: Sequence[int]) -> None:
    """Define the gradients [N, R] of the layers' states, which follow one another."""
    one = whole._replace(shape=whole.shape[1:])
    size = one.elements * ITEM_BYTES[one.dtype]
    for layer, index in enumerate(indices):
        build.values.define(index, _part(one, layer * size, one.shape))


def _layers(
    build: Builder, kind: Cell, ends: Sequence[Mapping[Parameter, Ref]], sides: int, x: Tensor
) -> RecurrentNetwork:
    steps, rows, inputs = x.shape
    wide, results = build.current.value(ends[0]["hidden_weight"]).shape
    return RecurrentNetwork(
        kind=kind,
        layers=len(ends) // sides,
        sides=sides,
        steps=steps,
        rows=rows,
        inputs=inputs,
        hidden=wide // GATES[kind],
        results=results,
        biased="input_bias" in ends[0],
        batch_major=x.layout.order != "rows",
        dtype=build.types.computed,
        arithmetic=build.types.convolutions,
        trains=build.current.trains,
    )


def _parameters(arguments: Recurrence) -> dict[Parameter, Ref]:
    found = ((name, getattr(arguments, name)) for name in PARAMETERS)
    return {name: reference for name, reference in found if reference is not None}


def _by_end(
    arguments: RecurrentStack | RecurrentStackBackward,
) -> list[dict[Parameter, Ref]]:
    """The parameters of each layer and side by name."""
    weights = arguments.weights
    each = len(weights) // len(arguments.hidden)
    names = [n for n in PARAMETERS if arguments.biased or n not in ("input_bias", "hidden_bias")]
    starts = range(0, len(weights), each)
    return [dict(zip(names, weights[at : at + each], strict=False)) for at in starts]


def _stacked(build: Builder, operand: Operand, states: Sequence[Ref]) -> Tensor:
    """The layers' states [N, R] one after the other."""
    rows = Layout(build.types.computed)
    if len(states) == 1:
        return build.values.wanted(states[0], rows)
    shape = build.current.value(states[0]).shape
    stack = build.memory.new(f"{build.current.name}.{operand}", (len(states), *shape), rows)
    size = rows.bytes(shape)
    for layer, reference in enumerate(states):
        build.values.copy(build.values.view(reference), _part(stack, layer * size, shape))
    return stack


def _steps_of(build: Builder, source: Ref, backwards: bool) -> Tensor:
    """x [L, N, I] as the library reads it: batch by batch if it is stored so, else step by step."""
    tensor, rows = build.values.view(source), Layout(build.types.computed)
    batches = batch_major(rows.dtype, tensor.shape)
    if backwards:
        x = build.values.wanted(source, rows)
        turned = build.memory.new(f"{build.current.name}.x", x.shape, rows)
        return _turned(build, x, turned)
    if same_memory(tensor.shape, tensor.layout, batches) and is_aligned(tensor):
        return tensor._replace(layout=batches)
    return build.values.wanted(source, rows)


# ---------------------------------------------------------------- both


def _part(space: Tensor, offset: int, shape: Sequence[int]) -> Tensor:
    return space._replace(shape=tuple(shape), offset=space.offset + offset)


def _scratch(build: Builder, shape: Sequence[int]) -> Tensor:
    return build.memory.new(
        f"{build.current.name}{SCRATCH}", tuple(shape), Layout(build.types.computed)
    )


def _turned(build: Builder, source: Tensor, target: Tensor) -> Tensor:
    """Copy [L, N, ...] with the last time step first."""
    step, *others = source.layout.strides(source.shape)
    seen = View(source.dtype, (-step, *others), (source.shape[0] - 1) * step)
    copy(build, source, seen, target, whole(target), source.shape, "turn")
    return target


def _refuse_backward(
    arguments: RecurrenceBackward | RecurrentStackBackward, question: Question
) -> str:
    kind = Recurrence if isinstance(arguments, RecurrenceBackward) else RecurrentStack
    integers = refuse_integers(arguments, question)
    return integers or not_made_by(question, arguments.output, kind)


IMPLEMENTATIONS = (
    Implementation(RecurrentLayers, recurrent_layers, refuse_integers),
    Implementation(Recurrence, recurrence, refuse_integers),
    Implementation(RecurrenceBackward, recurrence_backward, _refuse_backward),
    Implementation(RecurrentStack, recurrent_stack, refuse_integers),
    Implementation(RecurrentStackBackward, recurrent_stack_backward, _refuse_backward),
)

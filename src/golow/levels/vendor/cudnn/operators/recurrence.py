"""Recurrent networks by cuDNN: as a whole in inference, a layer in one direction in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.vendor.cudnn.gathering import copy, whole
from golow.levels.vendor.cudnn.kernels import ITEM_BYTES
from golow.levels.vendor.cudnn.layouts import Layout, layout_of, same_memory
from golow.levels.vendor.cudnn.recurrent import (
    NetworkEngine,
    Operand,
    Parameter,
    RecurrentNetwork,
)
from golow.levels.vendor.cudnn.recurrent_by_layers import by_layers
from golow.levels.vendor.cudnn.rnn_api import CudnnError, Network
from golow.levels.vendor.cudnn.steps import Tensor, is_aligned
from golow.levels.vendor.cudnn.weights import is_frozen
from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.refusing import not_made_by, refuse_integers
from golow.levels.vendor.views import View
from golow.lower.graph import Ref
from golow.lower.moving import SCRATCH
from golow.lower.operators.recurrence import GATES, Cell, Recurrence, RecurrenceBackward
from golow.lower.operators.recurrent_layers import RecurrentLayers
from golow.lower.operators.recurrent_stack import RecurrentStack, RecurrentStackBackward

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder

Given = dict[Operand, Tensor]
STEP = "recurrent_layers"
PARAMETERS: tuple[Parameter, ...] = (
    "input_weight", "hidden_weight", "input_bias", "hidden_bias", "projection",
)  # fmt: skip
"""Of a layer, in PyTorch's order."""


class Kept(NamedTuple):
    """What forward saves for backward: the network, and the tensors that it read and wrote."""

    network: Network
    given: Given


# ---------------------------------------------------------------- inference


def recurrent_layers(build: Builder, arguments: RecurrentLayers) -> None:
    """Define the results of all steps, and the last states that are read: by golow's own kernel
    where it is faster than the library."""
    problem, rows = _whole(build, arguments), Layout(build.types.computed)
    count_of_ends, left = problem.layers * problem.sides, iter(arguments.weights)
    names = [tuple(problem.parameters(i // problem.sides)) for i in range(count_of_ends)]
    ends = [{name: next(left) for name in one} for one in names]
    if all(is_frozen(build, weight) for weight in arguments.weights):
        found = build.engines.own_recurrence(problem)
        if found is not None:
            by_layers(build, arguments, problem, ends, found)
            return
    network = _network(build, problem)
    reads: Given = {
        "weights": _weights(build, network, ends),
        "x": build.wanted(arguments.x, rows),
        "hidden": build.wanted(arguments.hidden, rows),
    }
    if arguments.cell is not None:
        reads["cell"] = build.wanted(arguments.cell, rows)
    shape = (*build.value(arguments.x).shape[:2], problem.sides * problem.results)
    read = build.is_read(0)
    writes: Given = {"y": build.result(0, rows) if read else _scratch(build, shape)}
    lasts: tuple[tuple[int, Operand], ...] = ((1, "last_hidden"), (2, "last_cell"))
    for index, name in lasts[: arguments.results - 1]:
        if build.is_read(index):
            writes[name] = build.result(index, rows)
    _run(build, network, reads, writes)
    for index, name in ((0, "y"), *lasts):
        if name in writes:
            build.define(index, writes[name])


def _whole(build: Builder, arguments: RecurrentLayers) -> RecurrentNetwork:
    shape, types = build.value(arguments.x).shape, build.types
    rows, steps = shape[:2] if arguments.batch_first else shape[1::-1]
    results = build.value(arguments.hidden).shape[2]
    cell = arguments.cell
    return RecurrentNetwork(
        kind=arguments.kind,
        layers=arguments.layers,
        sides=2 if arguments.bidirectional else 1,
        steps=steps,
        rows=rows,
        inputs=shape[2],
        hidden=results if cell is None else build.value(cell).shape[2],
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
    states: tuple[Sequence[Ref], Sequence[Ref]],
    sides: int = 1,
    backwards: bool = False,
) -> None:
    """Define the results. ends: the parameters of each layer and side."""
    x, rows = _steps_of(build, arguments.x, backwards), Layout(build.types.computed)
    network = _network(build, _layers(build, arguments.kind, ends, sides, x))
    problem = network.problem
    reads: Given = {"weights": _weights(build, network, ends), "x": x}
    names: tuple[Operand, ...] = ("hidden", "cell")
    reads |= {
        operand: _stacked(build, operand, given)
        for operand, given in zip(names, states, strict=True)
        if given
    }
    shape, name = (problem.steps, problem.rows, sides * problem.results), build.node.name
    writes: Given = {"y": build.new(f"{name}.y", shape, _order(problem, shape))}
    if len(build.node.outputs) > 1 and build.is_read(1):
        writes["last_cell"] = build.result(1, rows)
        build.define(1, writes["last_cell"])
    if problem.trains:
        writes["reserve"] = build.new(f"{name}.reserve", (network.reserve,), Layout("uint8"))
    _run(build, network, reads, writes)
    if not build.is_read(0):
        return
    y = writes["y"]
    build.note(build.output().name, Kept(network, reads | writes))
    if backwards:
        y = _turned(build, y, build.new(f"{name}.turned", shape, rows))
    build.define(0, y)


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
    network, given = build.noted(arguments.output, Kept)
    problem, rows = network.problem, Layout(build.types.computed)
    gradient = build.wanted(arguments.gradient, given["y"].layout)
    if backwards:
        gradient = _turned(build, gradient, _scratch(build, gradient.shape))
    reads: Given = given | {"gradient": gradient}
    reads.pop("last_cell", None)
    if last_gradient is not None:
        reads["last_cell_gradient"] = build.wanted(last_gradient, rows)
    writes = _gradients(build, network, given, results, direct=not backwards)
    _run(build, network, reads, writes, backward=True)
    if build.is_read(0):
        made = writes["x_gradient"]
        build.define(0, _turned(build, made, build.result(0, rows)) if backwards else made)
    for operand, indices in (("hidden_gradient", results.hidden), ("cell_gradient", results.cell)):
        if (made := writes.get(operand)) is not None:  # type: ignore[call-overload]
            _define_parts(build, made, indices)
    space = writes["weight_gradients"]
    for end, (places, at) in enumerate(zip(network.places, results.parameters, strict=True)):
        for name, shape in problem.parameters(end // problem.sides).items():
            build.define(at[name], _part(space, places[name], shape))


def _define_parts(build: Builder, whole: Tensor, indices: Sequence[int]) -> None:
    """Define the gradients [N, R] of the layers' states, which lie one after the other."""
    one = whole._replace(shape=whole.shape[1:])
    size = one.elements * ITEM_BYTES[one.dtype]
    for layer, index in enumerate(indices):
        build.define(index, _part(one, layer * size, one.shape))


def _gradients(
    build: Builder, network: Network, given: Given, results: Results, direct: bool
) -> Given:
    """Memory for the gradients. The library always computes those of x and of the weights.
    direct: whether it writes the result itself."""
    x, rows = given["x"], Layout(build.types.computed)
    direct = direct and build.is_read(0)
    writes: Given = {
        "x_gradient": build.result(0, x.layout) if direct else _scratch(build, x.shape, x.layout)
    }
    problem, name = network.problem, build.node.name
    of_states: tuple[tuple[Operand, Sequence[int], int], ...] = (
        ("hidden_gradient", results.hidden, problem.results),
        ("cell_gradient", results.cell, problem.hidden),
    )
    for operand, indices, width in of_states:
        if any(map(build.is_read, indices)):
            shape = (problem.layers * problem.sides, problem.rows, width)
            writes[operand] = build.new(f"{name}.{operand}", shape, rows)
    elements = network.weight_bytes // ITEM_BYTES[rows.dtype]
    return writes | {"weight_gradients": build.new(f"{name}.weight_gradients", (elements,), rows)}


def _layers(
    build: Builder, kind: Cell, ends: Sequence[Mapping[Parameter, Ref]], sides: int, x: Tensor
) -> RecurrentNetwork:
    steps, rows, inputs = x.shape
    wide, results = build.value(ends[0]["hidden_weight"]).shape
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
        trains=build.trains,
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
        return build.wanted(states[0], rows)
    shape = build.value(states[0]).shape
    stack = build.new(f"{build.node.name}.{operand}", (len(states), *shape), rows)
    size = rows.bytes(shape)
    for layer, reference in enumerate(states):
        build.copy(build.view(reference), _part(stack, layer * size, shape))
    return stack


def _steps_of(build: Builder, source: Ref, backwards: bool) -> Tensor:
    """x [L, N, I] as the library reads it: batch by batch if it lies so, else step by step."""
    tensor, rows = build.view(source), Layout(build.types.computed)
    batches = _batch_major(rows.dtype, tensor.shape)
    if backwards:
        x = build.wanted(source, rows)
        turned = build.new(f"{build.node.name}.x", x.shape, rows)
        return _turned(build, x, turned)
    if same_memory(tensor.shape, tensor.layout, batches) and is_aligned(tensor):
        return tensor._replace(layout=batches)
    return build.wanted(source, rows)


def _order(problem: RecurrentNetwork, shape: Sequence[int]) -> Layout:
    return _batch_major(problem.dtype, shape) if problem.batch_major else Layout(problem.dtype)


def _batch_major(dtype: str, shape: Sequence[int]) -> Layout:
    """[L, N, I] with all time steps of a row side by side."""
    steps, _, width = shape
    return layout_of(dtype, shape, (width, steps * width, 1))


# ---------------------------------------------------------------- both


def _network(build: Builder, problem: RecurrentNetwork) -> Network:
    try:
        return build.engines.recurrent(problem)
    except CudnnError as error:
        raise build.unsupported(f"{build.node.op}: {error}") from error


def _weights(build: Builder, network: Network, ends: Sequence[Mapping[Parameter, Ref]]) -> Tensor:
    """All parameters in the library's one piece of memory: copied there when loading, in training
    in every iteration."""
    layout = Layout(build.types.computed)
    elements = network.weight_bytes // ITEM_BYTES[layout.dtype]
    with build.loading(*(ref.name for end in ends for ref in end.values())):
        space = build.new(f"{build.node.name}.weights", (elements,), layout)
        for end, places in zip(ends, network.places, strict=True):
            for name, reference in end.items():
                weight = build.wanted(reference, layout)
                build.copy(weight, _part(space, places[name], weight.shape))
    return space


def _part(space: Tensor, offset: int, shape: Sequence[int]) -> Tensor:
    return space._replace(shape=tuple(shape), offset=space.offset + offset)


def _run(
    build: Builder, network: Network, reads: Given, writes: Given, backward: bool = False
) -> None:
    engine = NetworkEngine(network, build.engines.gpu, (*reads, *writes), backward)
    operation = f"{STEP}_backward" if backward else STEP
    build.engine(engine, list(reads.values()), list(writes.values()), operation)


def _scratch(build: Builder, shape: Sequence[int], layout: Layout | None = None) -> Tensor:
    order = layout or Layout(build.types.computed)
    return build.new(f"{build.node.name}{SCRATCH}", tuple(shape), order)


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

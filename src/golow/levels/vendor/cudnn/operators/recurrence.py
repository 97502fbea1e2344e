"""Recurrent networks by cuDNN: as a whole in inference, a layer in one direction in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from golow.levels.vendor.cudnn.rnn_api import CudnnError, Network
from golow.levels.vendor.cudnn.steps import Tensor, is_aligned
from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.refusing import not_made_by, refuse_integers
from golow.levels.vendor.views import View
from golow.lower.graph import Ref
from golow.lower.moving import SCRATCH
from golow.lower.operators.recurrence import GATES, Recurrence, RecurrenceBackward
from golow.lower.operators.recurrent_layers import RecurrentLayers

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder

Given = dict[Operand, Tensor]
STEP = "recurrent_layers"
# The gradients of a layer in the order of its results.
GIVEN = ("x", "hidden", "cell", "input_weight", "hidden_weight", "input_bias", "hidden_bias",
         "projection")  # fmt: skip
OF_STATES: dict[str, Operand] = {"hidden": "hidden_gradient", "cell": "cell_gradient"}


class Kept(NamedTuple):
    """What forward saves for backward: the network, and the tensors that it read and wrote."""

    network: Network
    given: Given


# ---------------------------------------------------------------- inference


def recurrent_layers(build: Builder, arguments: RecurrentLayers) -> None:
    """Define the results of all steps, and the last states that are read."""
    network = _network(build, _whole(build, arguments))
    problem, rows = network.problem, Layout(build.types.computed)
    names = [tuple(problem.parameters(i // problem.sides)) for i in range(len(network.places))]
    left = iter(arguments.weights)
    ends = [{name: next(left) for name in one} for one in names]
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
    x, rows = _steps_of(build, arguments), Layout(build.types.computed)
    network = _network(build, _layer(build, arguments, x))
    problem = network.problem
    reads: Given = {
        "weights": _weights(build, network, [_parameters(arguments)]),
        "x": x,
        "hidden": build.wanted(arguments.hidden, rows),
    }
    if arguments.cell is not None:
        reads["cell"] = build.wanted(arguments.cell, rows)
    shape, name = (problem.steps, problem.rows, problem.results), build.node.name
    writes: Given = {"y": build.new(f"{name}.y", shape, _order(problem, shape))}
    if build.is_read(1):
        writes["last_cell"] = build.result(1, rows)
        build.define(1, writes["last_cell"])
    if problem.trains:
        writes["reserve"] = build.new(f"{name}.reserve", (network.reserve,), Layout("uint8"))
    _run(build, network, reads, writes)
    if build.is_read(0):
        build.note(build.output().name, Kept(network, reads | writes))
        y = writes["y"]
        build.define(0, _turned(build, y, build.new(f"{name}.turned", shape, rows))
                     if arguments.backwards else y)  # fmt: skip


def recurrence_backward(build: Builder, arguments: RecurrenceBackward) -> None:
    """Define the gradients that are read."""
    network, given = build.noted(arguments.output, Kept)
    problem, rows = network.problem, Layout(build.types.computed)
    gradient = build.wanted(arguments.gradient, given["y"].layout)
    if arguments.backwards:
        gradient = _turned(build, gradient, _scratch(build, gradient.shape))
    reads: Given = given | {"gradient": gradient}
    reads.pop("last_cell", None)
    if arguments.last_gradient is not None:
        reads["last_cell_gradient"] = build.wanted(arguments.last_gradient, rows)
    writes = _gradients(build, network, given["x"], arguments.backwards)
    _run(build, network, reads, writes, backward=True)
    if build.is_read(0):
        made = writes["x_gradient"]
        if arguments.backwards:
            made = _turned(build, made, build.result(0, rows))
        build.define(0, made)
    for name, operand in OF_STATES.items():
        if operand in writes:
            build.define(GIVEN.index(name), writes[operand])
    for name, shape in problem.parameters(0).items():
        part = _part(writes["weight_gradients"], network.places[0][name], shape)
        build.define(GIVEN.index(name), part)


def _layer(build: Builder, arguments: Recurrence, x: Tensor) -> RecurrentNetwork:
    steps, rows, inputs = x.shape
    wide, results = build.value(arguments.hidden_weight).shape
    return RecurrentNetwork(
        kind=arguments.kind,
        layers=1,
        sides=1,
        steps=steps,
        rows=rows,
        inputs=inputs,
        hidden=wide // GATES[arguments.kind],
        results=results,
        biased=arguments.input_bias is not None,
        batch_major=x.layout.order != "rows",
        dtype=build.types.computed,
        arithmetic=build.types.convolutions,
        trains=build.trains,
    )


def _parameters(arguments: Recurrence) -> dict[Parameter, Ref]:
    found: dict[Parameter, Ref | None] = {
        "input_weight": arguments.input_weight,
        "hidden_weight": arguments.hidden_weight,
        "input_bias": arguments.input_bias,
        "hidden_bias": arguments.hidden_bias,
        "projection": arguments.projection,
    }
    return {name: ref for name, ref in found.items() if ref is not None}


def _steps_of(build: Builder, arguments: Recurrence) -> Tensor:
    """x [L, N, I] as the library reads it: batch by batch if it lies so, else step by step."""
    tensor, rows = build.view(arguments.x), Layout(build.types.computed)
    batches = _batch_major(rows.dtype, tensor.shape)
    if arguments.backwards:
        x = build.wanted(arguments.x, rows)
        turned = build.new(f"{build.node.name}.x", x.shape, rows)
        return _turned(build, x, turned)
    if same_memory(tensor.shape, tensor.layout, batches) and is_aligned(tensor):
        return tensor._replace(layout=batches)
    return build.wanted(arguments.x, rows)


def _order(problem: RecurrentNetwork, shape: Sequence[int]) -> Layout:
    return _batch_major(problem.dtype, shape) if problem.batch_major else Layout(problem.dtype)


def _batch_major(dtype: str, shape: Sequence[int]) -> Layout:
    """[L, N, I] with all time steps of a row side by side."""
    steps, _, width = shape
    return layout_of(dtype, shape, (width, steps * width, 1))


def _gradients(build: Builder, network: Network, x: Tensor, backwards: bool) -> Given:
    """Memory for the gradients. The library always computes those of x and of the weights."""
    direct = build.is_read(0) and not backwards
    rows = Layout(build.types.computed)
    writes: Given = {
        "x_gradient": build.result(0, x.layout) if direct else _scratch(build, x.shape, x.layout)
    }
    for name, operand in OF_STATES.items():
        if build.is_read(GIVEN.index(name)):
            writes[operand] = build.result(GIVEN.index(name), rows)
    elements = network.weight_bytes // ITEM_BYTES[rows.dtype]
    name = f"{build.node.name}.weight_gradients"
    return writes | {"weight_gradients": build.new(name, (elements,), rows)}


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


def _refuse_backward(arguments: RecurrenceBackward, question: Question) -> str:
    integers = refuse_integers(arguments, question)
    return integers or not_made_by(question, arguments.output, Recurrence)


IMPLEMENTATIONS = (
    Implementation(RecurrentLayers, recurrent_layers, refuse_integers),
    Implementation(Recurrence, recurrence, refuse_integers),
    Implementation(RecurrenceBackward, recurrence_backward, _refuse_backward),
)

"""oneDNN's recurrent primitives: their arguments, and weights in the library's order of gates.

PyTorch has a matrix [G H, I] with a block of rows for each gate. oneDNN reads [I, G, H] forward and
[G, H, I] backward, and the GRU's gates as update, reset, new. Parameters are stored as [I, G H] in
memory, so that forward and the parameter's gradient only copy rows, and backward alone turns a
matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_float, c_uint
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from golow.levels.direct.onednn.bindings.constants import (
    BACKWARD,
    DST,
    ELTWISE,
    LEFT_TO_RIGHT,
    MULTIPLE_SRC,
    OVERWRITE_GRADIENTS,
    RIGHT_TO_LEFT,
    WEIGHTS,
    WEIGHTS_ITER,
)
from golow.levels.direct.onednn.bindings.library import Descriptor, array
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.lower.ir.graph import Ref
from golow.lower.operators.recurrence import GATES, Cell, Recurrence, RecurrenceBackward

if TYPE_CHECKING:
    from golow.levels.direct.onednn.build.builder import Builder

ORDER = {"lstm": (0, 1, 2, 3), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}
"""PyTorch's gates in the library's order; to and fro is the same exchange."""


LINE = 16
"""Numbers in a line of the cache."""


class Sizes(NamedTuple):
    """Sizes of a layer: time steps L, rows N, inputs I, hidden H, results R, and gates G."""

    kind: Cell
    backwards: bool
    projected: bool
    last: bool
    steps: int
    rows: int
    inputs: int
    hidden: int
    results: int

    @property
    def gates(self) -> int:
        """How many blocks a weight has."""
        return GATES[self.kind]


def sizes_of(build: Builder, arguments: Recurrence | RecurrenceBackward, last: bool) -> Sizes:
    """The sizes of a layer. last: whether its last state is a separate result."""
    steps, rows, inputs = build.current.value(arguments.x).shape
    wide, results = build.current.value(arguments.hidden_weight).shape
    return Sizes(
        kind=arguments.kind,
        backwards=arguments.backwards,
        projected=arguments.projection is not None,
        last=last,
        steps=steps,
        rows=rows,
        inputs=inputs,
        hidden=wide // GATES[arguments.kind],
        results=results,
    )


# ---------------------------------------------------------------- primitives


class _Layouts(NamedTuple):
    """Layouts of both directions. A layout is None where the layer has no such argument."""

    x: Descriptor
    hidden: Descriptor
    cell: Descriptor | None
    input_weight: Descriptor
    hidden_weight: Descriptor
    projection: Descriptor | None
    bias: Descriptor
    y: Descriptor
    last_hidden: Descriptor | None
    last_cell: Descriptor | None


def state_layout(sizes: Sizes, width: int) -> Descriptor:
    """Layout of a state, for one layer and direction."""
    return Descriptor.plain((1, 1, sizes.rows, width))


def bias_layout(sizes: Sizes) -> Descriptor:
    """One bias for both weights; the GRU's new gate has one for each."""
    return Descriptor.plain((1, 1, sizes.gates + (sizes.kind == "gru"), sizes.hidden))


def _layouts(sizes: Sizes) -> _Layouts:
    hidden, cell = state_layout(sizes, sizes.results), state_layout(sizes, sizes.hidden)
    is_lstm = sizes.kind == "lstm"
    shape = (sizes.gates, sizes.hidden)
    return _Layouts(
        x=Descriptor.plain((sizes.steps, sizes.rows, sizes.inputs)),
        hidden=hidden,
        cell=cell if is_lstm else None,
        input_weight=Descriptor.tagged((1, 1, sizes.inputs, *shape)),
        hidden_weight=Descriptor.tagged((1, 1, sizes.results, *shape)),
        projection=Descriptor.tagged((1, 1, sizes.hidden, sizes.results))
        if sizes.projected
        else None,
        bias=bias_layout(sizes),
        y=Descriptor.plain((sizes.steps, sizes.rows, sizes.results)),
        last_hidden=hidden if sizes.last else None,
        last_cell=cell if sizes.last else None,
    )


def _arguments(sizes: Sizes, of: _Layouts) -> list[Any]:
    """Layouts in the order of the library's functions."""
    if sizes.kind != "lstm":
        return [of.x, of.hidden, of.input_weight, of.hidden_weight, of.bias, of.y, of.last_hidden]
    states = [of.x, of.hidden, of.cell, of.input_weight, of.hidden_weight, None, of.projection]
    return [*states, of.bias, of.y, of.last_hidden, of.last_cell]


def _named(sizes: Sizes) -> tuple[str, list[int]]:
    """The library's name, and the function of elements of a plain layer."""
    if sizes.kind == "lstm":
        return "lstm", []
    if sizes.kind == "gru":
        return "lbr_gru", []
    return "vanilla_rnn", [ELTWISE[sizes.kind.removeprefix("rnn_")]]


def forward_primitive(build: Builder, sizes: Sizes) -> Primitive:
    """The layer in one direction; the library chooses the layouts of its weights, unless it wants
    them packed in a way that it does not describe."""
    found = _primitive(build, sizes, "forward", build.forward_kind, 0, _layouts(sizes))
    if not any(found.layout_of(w).is_opaque for w in (WEIGHTS, WEIGHTS_ITER)):
        return found
    described = _layouts(sizes)._replace(
        input_weight=_padded(sizes, sizes.inputs), hidden_weight=_padded(sizes, sizes.results)
    )
    return _primitive(build, sizes, "forward", build.forward_kind, 0, described)


def _padded(sizes: Sizes, columns: int) -> Descriptor:
    """[1, 1, I, G, H] with rows that begin at cache lines, and not all in the same set of the
    cache: what the library chooses where it does not pack."""
    length = -(-sizes.gates * sizes.hidden // LINE) * LINE
    length += LINE * (length % (16 * LINE) == 0)
    whole = columns * length
    return Descriptor.strided(
        (1, 1, columns, sizes.gates, sizes.hidden), (whole, whole, length, sizes.hidden, 1)
    )


def backward_primitive(build: Builder, sizes: Sizes, forward: Primitive) -> Primitive:
    """The layer's gradients; those of weights replace what is in their memory."""
    layouts = _layouts(sizes)
    return _primitive(build, sizes, "backward", BACKWARD, OVERWRITE_GRADIENTS, layouts, forward)


def _primitive(
    build: Builder,
    sizes: Sizes,
    way: str,
    kind: int,
    flags: int,
    layouts: _Layouts,
    hint: Primitive | None = None,
) -> Primitive:
    name, function = _named(sizes)
    numbers = [c_float(0), c_float(0)] if function else []
    described = _arguments(sizes, layouts)
    gradients = [] if hint is None else described
    return Primitive(
        build.engine, f"{name}_{way}", kind, *function,
        RIGHT_TO_LEFT if sizes.backwards else LEFT_TO_RIGHT, *described, *gradients,
        c_uint(flags), *numbers, *([] if hint is None else [hint.description]),
    )  # fmt: skip


# ---------------------------------------------------------------- weights


def turned(rows: int, columns: int) -> Descriptor:
    """A matrix whose columns follow one another."""
    return Descriptor.strided((rows, columns), (1, rows))


def _by_gates(tensor: Tensor, gates: int) -> Tensor:
    """A matrix [G H, I] in memory as [1, 1, I, G, H]."""
    rows, columns = tensor.layout.shape
    (row, column), hidden = tensor.layout.strides, rows // gates
    whole = rows * columns
    layout = Descriptor.strided(
        (1, 1, columns, gates, hidden), (whole, whole, column, hidden * row, row)
    )
    return tensor._replace(descriptor=layout)


def weight(build: Builder, reference: Ref, sizes: Sizes, layout: Descriptor) -> Tensor:
    """A weight with its gates in the library's order, in the layout that a primitive wants."""
    rows, columns = build.current.value(reference).shape
    given = build.values.wanted(reference, turned(rows, columns))
    return exchanged(build, _by_gates(given, sizes.gates), sizes, layout)


def weight_gradient(build: Builder, index: int, made: Tensor, sizes: Sizes) -> None:
    """Define the current node's gradient of a weight: its gates in PyTorch's order, and its memory
    in the order of the parameter's."""
    rows, columns = build.current.output(index).shape
    plain = turned(rows, columns)
    wanted = _by_gates(made._replace(descriptor=plain), sizes.gates).layout
    found = exchanged(build, made, sizes, wanted)
    build.values.define(index, found._replace(descriptor=plain))


def exchanged(build: Builder, tensor: Tensor, sizes: Sizes, layout: Descriptor) -> Tensor:
    """Gates in the other library's order, [1, 1, I, G, H] in this layout."""
    order = ORDER[sizes.kind]
    if order == tuple(sorted(order)):
        return tensor if tensor.layout == layout else build.values.reordered(tensor, layout)
    if tensor.layout.blocks:
        tensor = build.values.reordered(tensor, Descriptor.plain(tensor.layout.shape))
    shape = tensor.layout.shape
    one = (*shape[:3], 1, shape[4])
    parts = [tensor.layout.part(one, (0, 0, 0, gate, 0)) for gate in order]
    target = Descriptor.plain(shape) if layout.blocks else layout
    primitive = Primitive(build.engine, "concat", target, len(parts), 3, array(parts))
    result = build.memory.new(f"{build.current.name}.gates", shape, target)
    reads = {MULTIPLE_SRC + i: tensor._replace(descriptor=p) for i, p in enumerate(parts)}
    build.steps.call(primitive, reads, {DST: result}, "reorder")
    return result if result.layout == layout else build.values.reordered(result, layout)


def projection(build: Builder, reference: Ref, layout: Descriptor) -> Tensor:
    """The projection [R, H] as [1, 1, H, R] in the layout that a primitive wants."""
    results, hidden = build.current.value(reference).shape
    given = build.values.wanted(reference, turned(results, hidden))
    plain = given._replace(descriptor=Descriptor.plain((1, 1, hidden, results)))
    return plain if plain.layout == layout else build.values.reordered(plain, layout)


def projection_gradient(build: Builder, index: int, made: Tensor) -> None:
    """Define the current node's gradient of a projection."""
    results, hidden = build.current.output(index).shape
    plain = Descriptor.plain((1, 1, hidden, results))
    found = made if made.layout == plain else build.values.reordered(made, plain)
    build.values.define(index, found._replace(descriptor=turned(results, hidden)))


# ---------------------------------------------------------------- biases


def bias(build: Builder, input_bias: Ref | None, hidden_bias: Ref | None, sizes: Sizes) -> Tensor:
    """Both biases as the library has them; zeros where there are none, since it demands some."""
    name, layout = f"{build.current.name}.bias", bias_layout(sizes)
    if input_bias is None or hidden_bias is None:
        zeros = np.zeros(layout.shape, np.float32)
        return build.memory.constant(name, zeros)._replace(descriptor=layout)
    given = [build.values.plain(input_bias), build.values.plain(hidden_bias)]
    result = build.memory.new(name, layout.shape, layout)
    build.steps.array_call(_JOINED.get(sizes.kind, _sum_biases), given, [result])
    return result


def bias_gradients(build: Builder, first: int, made: Tensor, sizes: Sizes) -> None:
    """Define the current node's gradients of both biases, the first of that index."""
    count = sizes.gates * sizes.hidden
    results = []
    for index in (first, first + 1):
        name = build.current.output_name(index)
        results.append(build.memory.new(name, (count,), Descriptor.plain((count,))))
    build.steps.array_call(_PARTED.get(sizes.kind, _copy_twice), [made], results)
    for index, tensor in zip((first, first + 1), results, strict=True):
        build.values.define(index, tensor)


def _sum_biases(one: Any, other: Any, joined: Any) -> None:
    joined.reshape(-1)[...] = one + other


def _join_gru(one: Any, other: Any, joined: Any) -> None:
    """Update, reset, new of the input, new of the hidden state."""
    one, other = (bias.reshape(3, -1) for bias in (one, other))
    joined = joined.reshape(4, -1)
    joined[0], joined[1] = one[1] + other[1], one[0] + other[0]
    joined[2], joined[3] = one[2], other[2]


def _copy_twice(joined: Any, one: Any, other: Any) -> None:
    one[...] = other[...] = joined.reshape(-1)


def _part_gru(joined: Any, one: Any, other: Any) -> None:
    joined = joined.reshape(4, -1)
    for bias, new in ((one.reshape(3, -1), 2), (other.reshape(3, -1), 3)):
        bias[0], bias[1], bias[2] = joined[1], joined[0], joined[new]


_JOINED: dict[str, Callable[..., None]] = {"gru": _join_gru}
_PARTED: dict[str, Callable[..., None]] = {"gru": _part_gru}

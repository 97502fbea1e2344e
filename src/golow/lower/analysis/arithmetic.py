"""Operation counts: how much arithmetic a captured graph or the steps of a plan need, in products
of matrices and convolutions, and how many bytes the layers of a graph must move. Operations that
are neither are not counted."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from golow.lower.ir.graph import Argument, Graph, Node, Phase, Ref, Value
from golow.records.record import Record

FASTEST_CONVOLUTION = 8
"""Factor by which fast algorithms may reduce the arithmetic of a convolution of several pixels.
Winograd's F(4x4, 3x3) needs a fourth, F(4x4, 5x5) a sixth (Lavin & Gray, arXiv:1509.09308)."""

if TYPE_CHECKING:
    from golow.lower.plan.plan import Operand, Step

Values = Mapping[str, Value]


class LayerWork(Record, frozen=True, kw_only=True):
    """Work of a layer in one phase of an iteration: floating point operations (a multiplication
    and an addition are two), and the bytes of what it reads from elsewhere and of what it writes
    for others, each once."""

    module: str
    phase: Phase
    operations: float
    bytes: float


def least_operations(graph: Graph) -> float:
    """Floating point operations of one iteration, if fast algorithms (Winograd, FFT) compute its
    convolutions: a lower bound."""
    values = graph.values()
    return sum(node_operations(node, values) / _fastest(node, values) for node in graph.nodes)


def work_by_layer(graph: Graph) -> tuple[LayerWork, ...]:
    """Work of each layer, in their order. A layer's intermediate results are not moved."""
    values = graph.values()
    layers: dict[tuple[str, Phase], list[Node]] = defaultdict(list)
    readers: dict[str, set[tuple[str, Phase]]] = defaultdict(set)
    for node in graph.nodes:
        layers[node.module, node.phase].append(node)
        for name in node.references():
            readers[name].add((node.module, node.phase))
    returned = {output.name for output in graph.outputs}
    found = []
    for (module, phase), nodes in layers.items():
        own = {value.name for node in nodes for value in node.outputs if value is not None}
        read = {name for node in nodes for name in node.references()} - own
        written = {name for name in own if name in returned or readers[name] - {(module, phase)}}
        found.append(
            LayerWork(
                module=module,
                phase=phase,
                operations=sum(node_operations(node, values) for node in nodes),
                bytes=sum(value_bytes(values[name]) for name in read | written),
            )
        )
    return tuple(found)


def node_operations(node: Node, values: Values) -> float:
    """Floating point operations of a node of a captured graph."""
    if node.op in _RECURRENT:
        return _RECURRENT[node.op] * _recurrence(node, values)
    if node.op in _DROPPED:
        return _DROPPED[node.op] * _attention(node, values) / 2
    if node.op in _GROUPED:
        return _grouped(node, values)
    name = _name(node)
    return _COUNTS[name](node, values) if name else 0.0


def value_bytes(value: Value) -> float:
    """Bytes of a value as the graph has it."""
    size = 1 if value.dtype == "bool" else int(re.sub(r"\D", "", value.dtype.split("_")[0])) / 8
    return math.prod(value.shape) * size


def step_operations(step: Step) -> float:
    """Floating point operations of a step of a plan, by the operands that it reads and writes."""
    count = _STEPS.get(step.operation)
    return 0.0 if count is None else count(step.reads, step.writes)


def _fastest(node: Node, values: Values) -> float:
    """Factor by which fast algorithms may reduce the arithmetic of a node."""
    if "conv" not in _name(node):
        return 1.0
    weight = _shape(node.arguments[2 if "backward" in node.op else 1], values)
    return FASTEST_CONVOLUTION if math.prod(weight[2:]) > 1 else 1.0


def _name(node: Node) -> str:
    """The operation without namespace and overload; empty if it is not counted."""
    name = node.op.removeprefix("aten.").partition(".")[0]
    return name if node.op.startswith("aten.") and name in _COUNTS else ""


def _shape(argument: Argument, values: Values) -> tuple[int, ...]:
    return values[argument.name].shape if isinstance(argument, Ref) else ()


def _output(node: Node) -> tuple[int, ...]:
    found = node.outputs[0] if node.outputs else None
    return () if found is None else found.shape


def _product(node: Node, values: Values, left: int) -> float:
    """A matrix product whose left factor is the argument at that position."""
    shape = _shape(node.arguments[left], values)
    return 2.0 * math.prod(_output(node)) * (shape[-1] if shape else 0)


def _convolution(pixels: Sequence[int], weight: Sequence[int]) -> float:
    """One convolution with this many results, or gradients of results, as pixels has elements."""
    return 2.0 * math.prod(pixels) * math.prod(weight[1:])


def _forward(node: Node, values: Values) -> float:
    x, weight = (_shape(argument, values) for argument in node.arguments[:2])
    transposed = len(node.arguments) > 6 and node.arguments[6] is True
    return _convolution(x if transposed else _output(node), weight)


def _forward_of_dimensions(node: Node, values: Values) -> float:
    return _convolution(_output(node), _shape(node.arguments[1], values))


def _transposed(node: Node, values: Values) -> float:
    x, weight = (_shape(argument, values) for argument in node.arguments[:2])
    return _convolution(x, weight)


def _backward(node: Node, values: Values) -> float:
    gradient, x, weight = (_shape(argument, values) for argument in node.arguments[:3])
    transposed, wanted = node.arguments[7] is True, node.arguments[10]
    count = sum(item is True for item in wanted[:2]) if isinstance(wanted, tuple) else 0
    return count * _convolution(x if transposed else gradient, weight)


def _attention(node: Node, values: Values) -> float:
    first = 1 if "backward" in node.op else 0
    query, key, value = (_shape(a, values) for a in node.arguments[first : first + 3])
    return 2.0 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _recurrence(node: Node, values: Values) -> float:
    """A layer that a captured training step has whole: each row of a step meets all weights."""
    steps, rows, _ = _shape(node.keywords["x"], values)
    weights = (node.keywords[name] for name in ("input_weight", "hidden_weight", "projection"))
    counts = (math.prod(_shape(w, values)) for w in weights if w is not None)
    return 2.0 * steps * rows * sum(counts)


def _whole_recurrence(node: Node, values: Values) -> float:
    """A network of layers as PyTorch calls it: each row of a step meets every matrix once."""
    parameters = next(a for a in node.arguments[2:] if isinstance(a, tuple))
    shapes = [_shape(parameter, values) for parameter in parameters]
    rows = math.prod(_shape(node.arguments[0], values)[:-1])
    return 2.0 * rows * sum(math.prod(shape) for shape in shapes if len(shape) == 2)


def _grouped(node: Node, values: Values) -> float:
    """A mixture of experts: each row meets one matrix, for the result or each gradient that is
    read."""
    x, weight = (_shape(argument, values) for argument in node.arguments[:2])
    return sum(v is not None for v in node.outputs) * 2.0 * math.prod(x) * weight[-1]


# Backward there is a product for the arguments' gradients and one for the weights'.
_RECURRENT = {"golow.recurrence": 1, "golow.recurrence_backward": 2}

# Attention with dropout: its products; backward, the gradient comes before the query.
_DROPPED = {
    "golow_called.dropped_attention.default": 2,
    "golow_called.dropped_attention_backward.default": 4,
}

_GROUPED = (
    "transformers.grouped_mm_fallback.default",
    "transformers.grouped_mm_fallback_backward.default",
)

_COUNTS: dict[str, Callable[[Node, Values], float]] = {
    "mm": lambda node, values: _product(node, values, 0),
    "bmm": lambda node, values: _product(node, values, 0),
    "matmul": lambda node, values: _product(node, values, 0),
    "linear": lambda node, values: _product(node, values, 0),
    "addmm": lambda node, values: _product(node, values, 1),
    "baddbmm": lambda node, values: _product(node, values, 1),
    "convolution": _forward,
    "conv1d": _forward_of_dimensions,
    "conv2d": _forward_of_dimensions,
    "conv3d": _forward_of_dimensions,
    "conv_transpose1d": _transposed,
    "conv_transpose2d": _transposed,
    "conv_transpose3d": _transposed,
    "convolution_backward": _backward,
    "scaled_dot_product_attention": _attention,
    "lstm": _whole_recurrence,
    "gru": _whole_recurrence,
    "rnn_tanh": _whole_recurrence,
    "rnn_relu": _whole_recurrence,
}


# ---------------------------------------------------------------- steps of plans

Operands = Sequence["Operand"]


def _rows(reads: Operands, writes: Operands) -> float:
    """A product whose left factor is read first."""
    return 2.0 * math.prod(writes[0].shape) * reads[0].shape[-1]


def _images(output: Operand, weight: Operand) -> float:
    """A convolution in any direction; a grouped weight may have an axis for its groups."""
    each = math.prod(weight.shape) // output.shape[1]
    return 2.0 * math.prod(output.shape) * each


def _of_weight(reads: Operands, weight: Operand) -> float:
    """The gradient of a convolution's weight. The gradient of its result is the last operand that
    has the weight's outputs as channels; others are images, their patches, or a place."""
    outputs = len(weight.shape), weight.shape[0]
    return _images([r for r in reads if (len(r.shape), *r.shape[1:2]) == outputs][-1], weight)


def _heads(reads: Operands, products: int) -> float:
    """Attention's products; half of them have the length of a query's row, half of a value's."""
    query, key, value = (operand.shape for operand in reads[:3])
    return products * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _steps(result: Operand, weights: Operands) -> float:
    """A recurrent layer; its weights are read first. [L, N, ...] is its result."""
    return 2.0 * math.prod(result.shape[:2]) * sum(math.prod(w.shape) for w in weights)


# Backward, flash attention computes the scores again: five products instead of two.
_STEPS: dict[str, Callable[[Operands, Operands], float]] = {
    "linear": _rows,
    "quantized_linear": _rows,
    "matrix_product": _rows,
    "grouped_product": _rows,
    "grouped_sums": lambda reads, writes: 2.0 * math.prod(reads[0].shape) * reads[1].shape[-1],
    "convolution": lambda reads, writes: _images(writes[0], reads[1]),
    "convolution_backward_data": lambda reads, writes: _images(reads[0], reads[1]),
    "convolution_backward_weight": lambda reads, writes: _of_weight(reads, writes[0]),  # cuDNN's
    "convolution_backward_weights": lambda reads, writes: _images(reads[1], writes[0]),  # oneDNN's
    "attention": lambda reads, writes: _heads(reads, 2),
    "attention_backward": lambda reads, writes: _heads(reads, 5),
    "recurrence": lambda reads, writes: _steps(writes[0], reads[:2]),
    "recurrence_backward": lambda reads, writes: 2 * _steps(writes[0], reads[:2]),
    # cuDNN's, whose weights are one operand.
    "recurrent_layers": lambda reads, writes: _steps(writes[0], reads[:1]),
    "recurrent_layers_backward": lambda reads, writes: 2 * _steps(writes[0], reads[:1]),
}

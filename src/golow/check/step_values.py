"""Expected results of each operation of a plan for the inputs that it read, in float64.

A direct level returns the values that are in its memory while an iteration runs. Each operation of
its graph is computed again from the values that the level's own steps read, by the operator's
meaning: an error is found where it occurs, and later operations start from the stored values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor

from golow.lower.analysis.liveness import state_outputs
from golow.lower.ir.float64_default import float64_by_default
from golow.lower.ir.graph import Argument, Graph, Node, Scalar, Symbol
from golow.lower.ir.verify import run_node
from golow.lower.operators.all_reduce import AllReduce
from golow.lower.operators.attention import Attention, AttentionBackward
from golow.lower.operators.dropout import Dropout, DropoutBackward
from golow.lower.operators.loss_gradient import LossGradient

CPU = torch.device("cpu")
DOUBLE = Symbol(kind="dtype", name="float64")
SINGLE = Symbol(kind="dtype", name="float32")

Found = Callable[[int, str], Tensor | None]
"""The level's value of that name, which the node at that position makes; None if it hands over
none. It need not stay as it is longer than until the next one is requested."""
NOTHING: frozenset[str] = frozenset()
ATTENTION = (Attention.op(), AttentionBackward.op())


class StepValue(NamedTuple):
    """One result of one operation.

    found: the level's. wanted: in float64, from what the level's operation read. node, given: to
    compute it again; place: among the node's results. behind: the operations whose results the
    level did not hand over, so that their rounding is in this one's. before: what it is the new
    content of, in an update.
    """

    name: str
    node: Node
    place: int
    found: Tensor
    wanted: Tensor
    given: Mapping[str, Tensor]
    behind: frozenset[str]
    before: Tensor | None


def step_values(graph: Graph, inputs: Mapping[str, Tensor], found: Found) -> Iterator[StepValue]:
    """Yield every value that the level hands over, in the graph's order.

    inputs: the graph's, by the names of their values. What the level does not hand over is what
    float64 makes of the values before it. Random layers are off. Means over ranks are not checked
    here: one rank's values do not determine them. The check of the gradients covers them.
    """
    graph = in_double(graph)
    values = dict(inputs)  # as the level has them; float64 would take twice the memory
    unseen: dict[str, frozenset[str]] = {}
    last = {name: place for place, node in enumerate(graph.nodes) for name in node.references()}
    gradients = {item.name for item in graph.outputs if item.kind == "gradient"}
    state, scale = state_outputs(graph), 1.0
    for position, node in enumerate(graph.nodes):
        given = {name: doubled(values[name]) for name in node.references()}
        behind = NOTHING.union(*(unseen.get(name, NOTHING) for name in given))
        if node.phase == "update" and scale != 1.0:
            given |= {name: given[name] / scale for name in given.keys() & gradients}
        results = zip(node.outputs, evaluated(node, given), strict=True)
        for place, (value, wanted) in enumerate(results):
            if value is None:
                continue
            values[value.name] = wanted
            own = found(position, value.name)
            if own is None:
                unseen[value.name] = behind | {node.op}
                continue
            wanted = wanted.to(own.device)
            if node.op == LossGradient.op():  # the loss may be scaled: so are all gradients
                scale = float(own)
            elif node.op != AllReduce.op():  # the gradients of the other ranks are not here
                kept = values.get(state.get(value.name, "")) if node.phase == "update" else None
                before = None if kept is None else doubled(kept)
                yield StepValue(value.name, node, place, own, wanted, given, behind, before)
            if own.shape == wanted.shape:  # a copy: the next window takes the memory of this one
                values[value.name] = own.clone()
        for name in given:
            if last[name] == position:
                del values[name]


def evaluated(node: Node, given: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """The results of a node in float64, on the device of what it reads.

    With whole numbers it is computed on the CPU, because an index that is out of range ends a GPU's
    context; so is what a GPU has no kernel or no memory for.
    """
    device = next((item.device for item in given.values() if item.is_cuda), CPU)
    if device != CPU and not any(map(_is_whole, given.values())):
        try:
            with device:
                return _evaluated(node, given, device)
        except RuntimeError:  # NotImplementedError and OutOfMemoryError are of this kind
            pass
    found = _evaluated(node, given, CPU)
    return tuple(item if item is None else item.to(device) for item in found)


def _evaluated(node: Node, given: Mapping[str, Tensor], device: torch.device) -> tuple[Tensor, ...]:
    with float64_by_default(), torch.no_grad():
        found = run_node(node, {name: item.to(device) for name, item in given.items()})
        return tuple(item if item is None else doubled(item).to(device) for item in found)


def _is_whole(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def doubled(tensor: Tensor) -> Tensor:
    """Floating point numbers in float64, complex ones as pairs; whole numbers as they are."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.double() if tensor.is_floating_point() else tensor


def in_double(graph: Graph) -> Graph:
    """The graph with float64 where an argument names float32, and with no dropout."""

    def scalar(item: Scalar) -> Scalar:
        return DOUBLE if item == SINGLE else item

    def argument(given: Argument) -> Argument:
        return tuple(map(scalar, given)) if isinstance(given, tuple) else scalar(given)

    def field(name: str, given: Argument) -> Argument:
        """Operators of the vocabulary name a dtype by its text."""
        return "float64" if (name, given) == ("dtype", "float32") else argument(given)

    def converted(node: Node) -> Node:
        keywords = {name: field(name, given) for name, given in node.keywords.items()}
        if node.op == Dropout.op():
            keywords["probability"] = 0.0
        if node.op == DropoutBackward.op():
            keywords["scale"] = 1.0
        if node.op in ATTENTION:
            keywords["probability"] = 0.0
        return msgspec.structs.replace(
            node, arguments=tuple(map(argument, node.arguments)), keywords=keywords
        )

    return msgspec.structs.replace(graph, nodes=tuple(map(converted, graph.nodes)))

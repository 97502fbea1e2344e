"""Liveness: the last reads of a graph's values, which values are the new content of an input, and
which have the same elements: what may share memory, and when it may be overwritten."""

from __future__ import annotations

from collections.abc import Callable

from golow.lower.ir.graph import Graph, Ref, Value
from golow.lower.ir.operator import vocabulary
from golow.lower.operators.all_reduce import AllReduce
from golow.lower.operators.copy import Copy
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.take import AddRows


def state_outputs(graph: Graph) -> dict[str, str]:
    """Maps each value that is the new content of an input to the name of that input."""
    inputs = {(item.kind, item.target): item.value.name for item in graph.inputs}
    return {
        item.name: inputs[(item.kind, item.target)]  # type: ignore[index]
        for item in graph.outputs
        if (item.kind, item.target) in inputs
    }


def last_reads(graph: Graph) -> tuple[dict[str, str], dict[str, int]]:
    """Maps each view to the value whose memory it shares, and each such value to the last position
    that reads it or one of its views. Outputs, the loss and new buffers are read after the last
    node."""
    groups: dict[str, str] = {}
    last: dict[str, int] = {}
    for position, node in enumerate(graph.nodes):
        for name in node.references():
            last[groups.get(name, name)] = position
        kind, source = vocabulary().get(node.op), node.keywords.get("x")
        if kind is not None and kind.is_view and isinstance(source, Ref):
            for value in node.outputs:
                if value is not None:
                    groups[value.name] = groups.get(source.name, source.name)
    for item in graph.outputs:
        if item.kind in ("output", "loss", "buffer"):
            last[groups.get(item.name, item.name)] = len(graph.nodes)
    return groups, last


def share_memory(groups: dict[str, str], last: dict[str, int], name: str, whole: str) -> None:
    """Count a value, and its views, among those that share the memory of another one."""
    old, new = groups.get(name, name), groups.get(whole, whole)
    for view, group in groups.items():
        if group == old:
            groups[view] = new
    groups[name] = new
    last[new] = max(last.get(new, -1), last.get(old, -1))


def same_elements(graph: Graph) -> Callable[[str], str]:
    """A function from a value's name to that of the first value with the same elements in the same
    order: what reshaping views, and permutations that undo one another, leave in memory."""
    made_from: dict[str, tuple[str, tuple[int, ...]]] = {}  # the first value, and the order of axes

    def origin(value: Value) -> tuple[str, tuple[int, ...]]:
        return made_from.get(value.name, (value.name, tuple(range(len(value.shape)))))

    values = graph.values()
    for node in graph.nodes:
        view = Reshape.of(node) or Copy.of(node) or Permute.of(node)
        output = node.outputs[0] if view is not None else None
        if view is None or output is None:
            continue
        first, order = origin(values[view.x.name])
        if isinstance(view, Permute):
            made_from[output.name] = first, tuple(order[axis] for axis in view.order)
        elif list(order) == sorted(order):
            made_from[output.name] = first, tuple(range(len(output.shape)))

    def found(name: str) -> str:
        first, order = origin(values[name])
        return first if list(order) == sorted(order) else name

    return found


def gradient_places(graph: Graph) -> dict[str, str]:
    """Maps each value that may be stored where a parameter's gradient, or the sum of some, is kept
    to that parameter: the first with the gradient's elements, and what rows are added to in place
    on the way to it. Ranks average a gradient in place, unless a later node reads what it was."""
    first = same_elements(graph)
    groups, last = last_reads(graph)
    ends = {groups.get(item.name, item.name) for item in graph.outputs}
    added = {
        value.name: (position, operator.x.name)
        for position, node in enumerate(graph.nodes)
        if (operator := AddRows.of(node)) is not None
        for value in node.outputs
        if value is not None
    }
    averaged = _averaged_in_place(graph, groups, last)
    found: dict[str, str] = {}
    for item in graph.outputs:
        if item.kind not in ("gradient", "gradient_sum"):
            continue
        name = first(averaged.get(item.name, item.name))
        found[name] = item.target
        while name in added:
            position, x = added[name]
            group = groups.get(x, x)
            if group in ends or last[group] > position:
                break
            name = first(x)
            found[name] = item.target
    return found


def _averaged_in_place(
    graph: Graph, groups: dict[str, str], last: dict[str, int]
) -> dict[str, str]:
    """Maps each mean over ranks to the gradient whose memory it may take."""
    found: dict[str, str] = {}
    for position, node in enumerate(graph.nodes):
        if (operator := AllReduce.of(node)) is None:
            continue
        for value, gradient in zip(node.outputs, operator.gradients, strict=True):
            alone = last[groups.get(gradient.name, gradient.name)] == position
            if value is not None and alone:
                found[value.name] = gradient.name
    return found

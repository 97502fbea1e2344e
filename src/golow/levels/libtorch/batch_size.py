"""One program for several batch sizes.

A captured training step contains the number of samples as plain numbers in the shapes of views and
expansions. The program computes them from the batch it receives, so that at each size it equals the
graph captured at that size.

If the step is captured at two sizes, that of an epoch's batches and that of the smaller last one,
the differences show which numbers these are. If it is captured at one size, some can still be
recognised: programs for different sizes then mostly have the same text, and the compiler runs once
for all of them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from golow.levels.libtorch.arguments import PerSample
from golow.lower.ir.graph import Graph, Node
from golow.records.errors import Unsupported
from golow.workload.bundle import Bundle


class _Differs(Exception):
    """Two arguments differ in more than the number of samples."""


def step_for_both(bundle: Bundle, graph: Graph, last: Bundle, last_graph: Graph) -> Graph:
    """The graph with `PerSample` for every argument that counts samples.

    Raises `Unsupported` if the two steps differ in anything else.
    """
    constants = (each.file("constants.safetensors").read_bytes() for each in (bundle, last))
    if _outline(graph) != _outline(last_graph) or len(set(constants)) > 1:
        raise Unsupported("libtorch", "the smaller last batch needs a different step")
    return step_for_sizes(graph, last_graph, (bundle.workload.batch, last.workload.batch))


def step_for_sizes(graph: Graph, other: Graph, sizes: tuple[int, int]) -> Graph:
    """The graph with `PerSample` for every argument that counts samples, from two graphs of these
    sizes. Raises `Unsupported` if they differ in anything else."""
    if _outline(graph) != _outline(other):
        raise Unsupported("libtorch", "another batch needs a different step")
    pairs = zip(graph.nodes, other.nodes, strict=True)
    return msgspec.structs.replace(graph, nodes=tuple(_for_both(*pair, sizes) for pair in pairs))


def step_for_any(graph: Graph, samples: int) -> Graph:
    """The graph with `PerSample` for the first number of every argument that states the shape of
    its node's result, if that number is the number of samples. If the two are equal by chance, the
    program is still right at this size, and its text differs from that for other sizes."""
    return msgspec.structs.replace(graph, nodes=tuple(_for_any(n, samples) for n in graph.nodes))


def _for_any(node: Node, samples: int) -> Node:
    result = node.outputs[0] if node.outputs else None
    if result is None or result.shape[:1] != (samples,):
        return node
    told = (PerSample(times=1), *result.shape[1:])
    arguments = tuple(told if each == result.shape else each for each in node.arguments)
    return msgspec.structs.replace(node, arguments=arguments)


def _outline(graph: Graph) -> Any:
    """All of the graph except shapes and arguments."""
    inputs = [(item.kind, item.target, item.value.name) for item in graph.inputs]
    nodes = [
        (node.op, node.name, [value and value.name for value in node.outputs], list(node.keywords))
        for node in graph.nodes
    ]
    return inputs, nodes, graph.outputs


def _for_both(node: Node, last: Node, sizes: tuple[int, int]) -> Node:
    try:
        arguments = _argument(node.arguments, last.arguments, sizes)
        keywords = {
            name: _argument(argument, last.keywords[name], sizes)
            for name, argument in node.keywords.items()
        }
    except _Differs as error:
        reason = f"{node.op} depends on the batch size, and not only through a multiple of it"
        raise Unsupported("libtorch", reason, node.name, node.module) from error
    return msgspec.structs.replace(node, arguments=arguments, keywords=keywords)


def _argument(whole: Any, last: Any, sizes: tuple[int, int]) -> Any:
    """The argument for both sizes: that of a whole batch and that of the last one."""
    if whole == last and type(whole) is type(last):
        return whole
    if isinstance(whole, tuple) and isinstance(last, tuple) and len(whole) == len(last):
        return tuple(_argument(*pair, sizes) for pair in zip(whole, last, strict=True))
    if type(whole) is int and type(last) is int:
        times = whole // sizes[0]
        if (whole, last) == (times * sizes[0], times * sizes[1]):
            return PerSample(times=times)
    raise _Differs

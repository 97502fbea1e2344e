"""The graph for a device, and what precision the emitted program can run in.

Capture happens on the CPU, so that a graph says ``cpu`` wherever a tensor is made from nothing.
"""

from __future__ import annotations

import msgspec

from golow.lower.graph import Argument, Graph, Node, Symbol
from golow.record import Device, Unsupported, Workload

HALF = ("bf16", "fp16")

# Operations that take no tensor to see by where to make theirs.
FROM_NOTHING = frozenset(
    f"aten.{name}"
    for name in "ones.default zeros.default full.default empty.memory_format arange.default "
    "arange.start arange.start_step scalar_tensor.default eye.default eye.m linspace.default "
    "rand.default randn.default tril_indices.default triu_indices.default".split()
)


def on_device(graph: Graph, device: Device) -> Graph:
    """The graph whose operations make their tensors on the device."""

    def moved(argument: Argument) -> Argument:
        if isinstance(argument, Symbol) and argument.kind == "device":
            return Symbol(kind="device", name=device)
        return argument

    def placed(node: Node) -> Node:
        keywords = {name: moved(argument) for name, argument in node.keywords.items()}
        if node.op in FROM_NOTHING and keywords.get("device") is None:
            keywords["device"] = Symbol(kind="device", name=device)
        arguments = tuple(map(moved, node.arguments))
        return msgspec.structs.replace(node, arguments=arguments, keywords=keywords)

    nodes = map(placed, graph.nodes)
    return graph if device == "cpu" else msgspec.structs.replace(graph, nodes=tuple(nodes))


def require_precision(workload: Workload) -> None:
    """Raise `golow.record.Unsupported` for training in bf16 and fp16."""
    if workload.mode == "train" and workload.precision in HALF:
        raise Unsupported(
            "libtorch",
            f"training in {workload.precision} goes by autocast, without which the graph was "
            "captured",
        )

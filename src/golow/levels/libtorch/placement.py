"""Adapts the graph to a device and to the precision of a training step.

Capture happens on the CPU, so a graph states ``cpu`` wherever it creates a tensor from nothing.
"""

from __future__ import annotations

import msgspec

from golow.lower.aten.autocast import NoCasts, autocast
from golow.lower.ir.graph import Argument, Graph, Node, Symbol
from golow.records.errors import Unsupported
from golow.records.workload import Device, Workload

HALVES = {"bf16": "bfloat16", "fp16": "float16"}

# Operations without a tensor argument that would tell them the device.
FROM_NOTHING = frozenset(
    f"aten.{name}"
    for name in "ones.default zeros.default full.default empty.memory_format arange.default "
    "arange.start arange.start_step scalar_tensor.default eye.default eye.m linspace.default "
    "rand.default randn.default tril_indices.default triu_indices.default".split()
)


def on_device(graph: Graph, device: Device) -> Graph:
    """The graph with operations that create their tensors on the device."""

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


def products(workload: Workload) -> str:
    """The dtype of convolutions and matrix products in the workload's training step."""
    return HALVES.get(workload.precision, "float32") if workload.mode == "train" else "float32"


def with_casts(graph: Graph, dtype: str) -> Graph:
    """The training step with its products in that dtype. (An inference program runs in the
    precision that it is loaded in.) Raises `Unsupported` if an operation cannot run
    under autocast."""
    if dtype == "float32":
        return graph
    try:
        return autocast(graph, dtype)
    except NoCasts as error:
        reason = f"{error.node.op} cannot run under autocast: {error}"
        raise Unsupported("libtorch", reason, error.node.name, error.node.module) from error

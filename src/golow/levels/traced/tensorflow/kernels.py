"""Kernels that TensorFlow lacks for CPUs, as of TensorFlow 2.21. XLA has all of them."""

from __future__ import annotations

from collections.abc import Iterator

from golow.lower.ir.graph import Graph
from golow.lower.operators.convolution import Convolution, ConvolutionBackward
from golow.records.errors import Unsupported
from golow.records.workload import Workload

LEVEL = "tensorflow:graph"


def require_kernels(graph: Graph, workload: Workload) -> None:
    """Raise `Unsupported` for the first node of a lowered graph that has no kernel."""
    for refusal in _lacking(graph, trains=workload.mode == "train"):
        raise refusal


def _lacking(graph: Graph, trains: bool) -> Iterator[Unsupported]:
    values = graph.values()
    for node in graph.nodes:
        layer = Convolution.of(node)
        transposed = ConvolutionBackward.of(node)
        reason = ""
        if layer is not None:
            shape = values[layer.x.name].shape
            reason = _reason(layer, depthwise=layer.groups == shape[1] > 1, trains=trains)
        elif transposed is not None and transposed.dilation != (1, 1):
            reason = "a transposed convolution with gaps in its kernel"
        if reason:
            why = f"TensorFlow has no kernel for {reason} on a CPU; use tensorflow"
            yield Unsupported(LEVEL, why, node.name, node.module)


def _reason(layer: Convolution, depthwise: bool, trains: bool) -> str:
    if depthwise:
        uneven = layer.stride[0] != layer.stride[1]
        return "a depthwise convolution with two strides" if uneven else ""
    if trains and layer.dilation != (1, 1):
        return "the gradient of a convolution with gaps in its kernel"
    if trains and layer.groups != 1:
        return "the gradient of a convolution in groups"
    return ""

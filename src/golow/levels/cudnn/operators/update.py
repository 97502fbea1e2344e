"""SGD with momentum and weight decay: the graph has two nodes for every parameter, the GPU one step
over all of them, after the last gradient."""

from __future__ import annotations

from golow.levels.cudnn.builder import Builder, Operator
from golow.lower.graph import Node


def new_momentum(build: Builder, node: Node) -> None:
    """momentum <- factor momentum + gradient + weight_decay parameter."""
    factor, decay = node.arguments[3:]
    build.update_with(float(factor), float(decay))  # type: ignore[arg-type]


def new_parameter(build: Builder, node: Node) -> None:
    """parameter <- parameter - learning_rate momentum."""
    build.state(node.arguments[2])


OPERATORS: dict[str, Operator] = {
    "golow.new_momentum": new_momentum,
    "golow.new_parameter": new_parameter,
}

"""Graphs of operators written by hand, with a tensor for each input; what rules make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor

from golow.lower.ir.graph import Activation, Graph, GraphInput, GraphOutput, Node, Ref, Value
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.patterns import Rule, fuse
from golow.lower.ir.verify import interpret, run_node, verify
from golow.lower.operators.activation import Activate
from golow.lower.operators.batch_norm import BatchNormInference
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import Convolution
from support.graphs.lowering import assert_close

RELU, TANH = Activation(name="relu"), Activation(name="tanh")


def ref(name: str) -> Ref:
    return Ref(name=name)


def one(name: str, operator: Operator) -> tuple[str, Operator]:
    return name, operator


class Written:
    """A graph written by hand: inputs by name, operators in order, shapes found by running it. A
    node's first result has its name, the others its name with their index."""

    def __init__(
        self, inputs: dict[str, Tensor], nodes: Sequence[tuple[str, Operator]], *returned: str
    ) -> None:
        self.given = inputs
        tensors = dict(inputs)
        made = []
        for name, operator in nodes:
            empty = written(Node(name=name, op="", arguments=(), module=name), operator)
            found = run_node(empty, tensors)
            outputs = []
            for index, tensor in enumerate(found):
                own = name if index == 0 else f"{name}_{index}"
                outputs.append(None if tensor is None else value(own, tensor))
                tensors[own] = tensor
            made.append(msgspec.structs.replace(empty, outputs=tuple(outputs)))
        self.graph = verify(
            Graph(
                name="written",
                mode="train",
                inputs=tuple(
                    GraphInput(value=value(name, tensor), kind="input", target=name)
                    for name, tensor in inputs.items()
                ),
                nodes=tuple(made),
                outputs=tuple(
                    GraphOutput(name=name, kind="output", target=name) for name in returned
                ),
            )
        )

    def after(self, *rules: Rule) -> Graph:
        """The graph after the rules; it computes the same."""
        graph = self.graph
        for rule in rules:
            graph = verify(fuse(graph, rule))
        assert_close(interpret(graph, self.given), interpret(self.graph, self.given), "rules")
        return graph


def value(name: str, tensor: Tensor) -> Value:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Value(name=name, shape=tuple(tensor.shape), dtype=dtype)


def numbers(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def add(a: str, b: str | float) -> Binary:
    return Binary(function="add", a=ref(a), b=ref(b) if isinstance(b, str) else b)


def activate(x: str, activation: Activation = RELU) -> Activate:
    return Activate(x=ref(x), activation=activation)


# ---------------------------------------------------------------- examples of rules


class Fires(NamedTuple):
    """A graph on which a rule fires, and the operators that it then consists of, in order."""

    graph: Written
    becomes: Sequence[Operator]


class Stays(NamedTuple):
    """A graph that a rule must leave as it is."""

    graph: Written


IMAGES = {"x": numbers(2, 3, 4, 4), "w": numbers(3, 3, 3, 3), "z": numbers(2, 3, 4, 4) + 1}
CHANNELS = {name: numbers(3).abs() + 0.5 for name in ("scale", "shift", "mean", "variance")}
SAME = Convolution(x=ref("x"), weight=ref("w"), padding=(1, 1, 1, 1))  # keeps the shape
NORM = BatchNormInference(
    x=ref("c"), scale=ref("scale"), shift=ref("shift"), mean=ref("mean"), variance=ref("variance"),
    epsilon=1e-5,
)  # fmt: skip

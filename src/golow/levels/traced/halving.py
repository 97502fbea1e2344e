"""Passes for half precision: which values of a graph are bfloat16 or float16.

In training autocast decides, whose casts become nodes of the forward graph. In inference all
weights and activations are stored in half precision, as by ``module.to(torch.bfloat16)``.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from golow.levels.direct.weight_arithmetic import ARITHMETIC
from golow.lower.aten.autocast import NoCasts, autocast
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import record_of, written
from golow.lower.ir.rewriting import with_names
from golow.lower.ir.verify import run_node
from golow.lower.operators.pointwise import Pointwise
from golow.records.errors import Unsupported
from golow.records.workload import Precision

HALVES: dict[Precision, str] = {"bf16": "bfloat16", "fp16": "float16"}


def autocast_forward(graph: Graph, half: str) -> Graph:
    """The forward part of a training step under autocast. Raises `Unsupported` if an operation
    cannot run so."""
    try:
        return autocast(graph, half)
    except NoCasts as error:
        reason = f"{error.node.op} cannot run under autocast: {error}"
        raise Unsupported("", reason, error.node.name, error.node.module) from error


def store_in_half(graph: Graph, half: str) -> Graph:
    """The inference graph with float32 numbers stored in half precision: weights, and what is
    derived from them, after casts that a worker runs once; batches, which come as float32, after
    casts that are part of an iteration."""
    with FakeTensorMode():
        return _Halving(graph, half).halved()


class _Halving:
    """The rewriting of one graph. Fake tensors tell which dtype PyTorch gives each value."""

    def __init__(self, graph: Graph, half: str) -> None:
        self.graph, self.half = graph, half
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.renamed: dict[str, str] = {}

    def halved(self) -> Graph:
        """The graph with its casts."""
        for item in self.graph.inputs:
            value = item.value
            dtype = getattr(torch, value.dtype)
            self.tensors[value.name] = torch.empty(value.shape, dtype=dtype)
        derived = {node.name for node in self.graph.nodes if node.op in ARITHMETIC}
        for node in self.graph.nodes:
            if node.name in derived:
                self._append(node)
            else:
                self._append(self._reading_halves(node))
        outputs = tuple(
            msgspec.structs.replace(item, name=self._half(item.name)) for item in self.graph.outputs
        )
        return msgspec.structs.replace(self.graph, nodes=tuple(self.nodes), outputs=outputs)

    def _reading_halves(self, node: Node) -> Node:
        """The node with its arguments in half precision, and with numbers that it makes."""
        node = with_names(node, {name: self._half(name) for name in node.references()})
        record = record_of(node)
        if record is None or getattr(record, "dtype", "") != "float32":
            return node
        return written(node, msgspec.structs.replace(record, dtype=self.half))

    def _half(self, name: str) -> str:
        """The name of a value in half precision, which is cast where it is first needed."""
        if self.tensors[name].dtype != torch.float32:
            return name
        if name not in self.renamed:
            shape = tuple(self.tensors[name].shape)
            value = Value(name=f"{name}.{self.half}", shape=shape, dtype=self.half)
            convert = Pointwise(function="convert", operands=(Ref(name=name),), dtype=self.half)
            node = Node(name=value.name, op="", arguments=(), outputs=(value,))
            self._append(written(node, convert))
            self.renamed[name] = value.name
        return self.renamed[name]

    def _append(self, node: Node) -> None:
        outputs: list[Value | None] = []
        for value, tensor in zip(node.outputs, run_node(node, self.tensors), strict=True):
            if value is not None:
                self.tensors[value.name] = tensor
                value = msgspec.structs.replace(value, dtype=str(tensor.dtype)[6:])
            outputs.append(value)
        self.nodes.append(msgspec.structs.replace(node, outputs=tuple(outputs)))

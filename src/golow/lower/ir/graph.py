"""The intermediate representation: one small typed graph that prints as Python.

A graph is a straight line of operations on named values, without side effects: what the model
mutates (running statistics) is returned as a further output. Graphs are immutable; a pass returns
a new one. Nothing here imports torch, so that workers without a framework can read graphs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from golow.records.record import Record
from golow.records.workload import Mode

Phase = Literal["forward", "backward", "update"]
InputKind = Literal[
    "parameter",
    "buffer",
    "constant",
    "input",
    "target",
    "momentum",
    "square",
    "steps",
    "gradient_sum",
    "learning_rate",
]
OutputKind = Literal[
    "output",
    "loss",
    "gradient",
    "buffer",
    "parameter",
    "momentum",
    "square",
    "steps",
    "gradient_sum",
    "clip_factor",
]


class Value(Record, frozen=True, kw_only=True):
    """A named tensor: its shape, and its dtype under torch's name without the prefix."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Ref(Record, frozen=True, kw_only=True, tag="value"):
    """An argument that is a value of the graph."""

    name: str


class Symbol(Record, frozen=True, kw_only=True, tag="symbol"):
    """An argument that is one of torch's named constants, or a float that JSON cannot write."""

    kind: Literal["dtype", "layout", "device", "memory_format", "float"]
    name: str


class Activation(Record, frozen=True, kw_only=True, tag="activation"):
    """An argument that is an elementwise function: ``relu``, or ``clip`` with its bounds."""

    name: str
    numbers: tuple[float, ...] = ()


Scalar = None | bool | int | float | str | Ref | Symbol | Activation
Argument = Scalar | tuple[Scalar, ...]


class Node(Record, frozen=True, kw_only=True):
    """One operation: ``outputs = op(*arguments, **keywords)``.

    op is ATen's full name of the overload (``aten.conv2d.default``), or the name of an operator of
    golow's vocabulary (``golow.convolution``, see ``operator.py``), whose arguments are keywords.
    An output that nothing reads is None. module: the path of the layer it came from
    (``layer1.0.conv1``), empty at the top level. absorbed: the paths of further layers that were
    fused into it.
    """

    name: str
    op: str
    arguments: tuple[Argument, ...]
    keywords: dict[str, Argument] = {}
    outputs: tuple[Value | None, ...] = ()
    several: bool = False
    module: str = ""
    absorbed: tuple[str, ...] = ()
    phase: Phase = "forward"

    def references(self) -> Iterator[str]:
        """Names of the values that the node reads, in order and with repetitions."""
        for argument in (*self.arguments, *self.keywords.values()):
            for item in argument if isinstance(argument, tuple) else (argument,):
                if isinstance(item, Ref):
                    yield item.name


class GraphInput(Record, frozen=True, kw_only=True):
    """A value that the graph receives.

    target: the state dict's name for a parameter or buffer, the constant's name, or the index of
    an input or target of the batch. number: what a constant without axes holds. lists: the 8-bit
    type all of whose numbers a constant holds, in the order of their bits.
    """

    value: Value
    kind: InputKind
    target: str
    number: bool | int | float | None = None
    lists: str = ""


class GraphOutput(Record, frozen=True, kw_only=True):
    """A value that the graph returns: a model output (target: its index), the loss, the gradient of
    a parameter or the new content of a buffer (target: the state dict's name)."""

    name: str
    kind: OutputKind
    target: str


class PassRecord(Record, frozen=True, kw_only=True):
    """A stage that made or changed the graph: its name, its seconds and the nodes it left."""

    name: str
    seconds: float
    nodes: int


class Graph(Record, frozen=True, kw_only=True):
    """Inputs, nodes in an order in which they can run, outputs, and the passes so far."""

    name: str
    mode: Mode
    inputs: tuple[GraphInput, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[GraphOutput, ...]
    history: tuple[PassRecord, ...] = ()

    def values(self) -> dict[str, Value]:
        """Every value by its name."""
        found = {item.value.name: item.value for item in self.inputs}
        found |= {v.name: v for node in self.nodes for v in node.outputs if v is not None}
        return found

    def __str__(self) -> str:
        return print_python(self)


Pass = Callable[[Graph], Graph]


def encode_graph(graph: Graph) -> bytes:
    """The graph as JSON."""
    return msgspec.json.encode(graph)


def decode_graph(data: bytes) -> Graph:
    """The graph that `encode_graph` wrote."""
    return msgspec.json.decode(data, type=Graph)


def as_number(value: float) -> float | Symbol:
    """A float as an argument; infinities and NaN become symbols, because JSON cannot write them."""
    return value if math.isfinite(value) else Symbol(kind="float", name=str(value))


# ---------------------------------------------------------------- printing


def print_python(graph: Graph) -> str:
    """The graph as the source of a Python function that calls torch.ops.aten and, for operators of
    the vocabulary, their meanings. The source can be executed.

    The function takes a dictionary of the inputs by value name and returns one of the outputs under
    ``kind/target``.
    """
    lines = ["import torch", "from torch.ops import aten"]
    if any(node.op.startswith("golow.") for node in graph.nodes):
        lines += ["from golow.lower.ir import meaning as golow"]
    lines += ["", ""]
    lines += [f"def {graph.name}(given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:"]
    lines += [f"    {_input_line(item)}" for item in graph.inputs]
    place: tuple[str, str] | None = None
    for node in graph.nodes:
        here = (node.module, node.phase)
        if here != place:
            lines += ["", f"    # {_place_text(node)}"]
            place = here
        lines.append(f"    {_node_line(node)}")
    lines += ["", "    return {"]
    lines += [f'        "{item.kind}/{item.target}": {item.name},' for item in graph.outputs]
    lines.append("    }")
    return "\n".join(lines) + "\n"


def _input_line(item: GraphInput) -> str:
    return (
        f'{item.value.name} = given["{item.value.name}"]  # {item.value}  {item.kind} {item.target}'
    )


def _place_text(node: Node) -> str:
    place = node.module or "(top)"
    return place if node.phase == "forward" else f"{place}, backward"


def _node_line(node: Node) -> str:
    given = [_argument_text(a) for a in node.arguments]
    given += [f"{name}={_argument_text(a)}" for name, a in node.keywords.items()]
    names = [v.name if v is not None else "_" for v in node.outputs]
    left = ", ".join(names) + ("," if node.several and len(names) == 1 else "")
    shapes = ", ".join(str(v) for v in node.outputs if v is not None)
    return f"{left} = {node.op}({', '.join(given)})  # {shapes}"


def _argument_text(argument: Argument) -> str:
    if isinstance(argument, tuple):
        return f"[{', '.join(_argument_text(item) for item in argument)}]"
    if isinstance(argument, Ref):
        return argument.name
    if isinstance(argument, Activation):
        return f"golow.Activation(name={argument.name!r}, numbers={argument.numbers!r})"
    if isinstance(argument, Symbol):
        return {
            "dtype": f"torch.{argument.name}",
            "layout": f"torch.{argument.name}",
            "memory_format": f"torch.{argument.name}",
            "device": f"torch.device({argument.name!r})",
            "float": f"float({argument.name!r})",
        }[argument.kind]
    return repr(argument)

"""Translates a captured torch.fx graph into golow's own."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from golow.lower.aten.recurrence_calls import in_vocabulary
from golow.lower.ir.graph import (
    Argument,
    Graph,
    GraphInput,
    GraphOutput,
    Node,
    PassRecord,
    Phase,
    Ref,
    Scalar,
    Symbol,
    Value,
    as_number,
)
from golow.lower.ir.naming import Namer
from golow.lower.ir.operator import written
from golow.lower.operators.loss_gradient import LossGradient
from golow.lower.operators.quantize import E4M3
from golow.records.errors import GolowError
from golow.records.workload import Mode


class Captured(NamedTuple):
    """The graph, and the tensors that it reads and that the model's code created."""

    graph: Graph
    constants: dict[str, Tensor]


class Ends(NamedTuple):
    """The roles of an fx graph's placeholders and results."""

    inputs: list[tuple[fx.Node, str, str]]  # placeholder, kind, target
    outputs: list[tuple[fx.Node, str, str]]  # result, kind, target


def translate(
    name: str,
    mode: Mode,
    module: nn.Module,
    traced: fx.GraphModule,
    ends: Ends,
    constants: dict[str, Tensor],
    start: float,
) -> Captured:
    """The graph with readable names.

    ends: the roles of its inputs and outputs. start: when the capture began (`time.perf_counter`),
    for the graph's history.
    """
    namer = Namer({path for path, child in module.named_modules() if not list(child.children())})
    names: dict[fx.Node | tuple[fx.Node, int], str] = {}
    graph_inputs: list[GraphInput] = []
    nodes: list[Node] = []
    used_constants: dict[str, Tensor] = {}

    def add_input(node: fx.Node, kind: Any, target: str, tensor: Tensor) -> None:
        value = value_of(namer.input(kind, target), tensor)
        names[node] = value.name
        number, lists = None, ""
        if kind == "constant":
            used_constants[target] = held = constants[target].detach()
            number, lists = _number(held), _listed(held)
        graph_inputs.append(
            GraphInput(value=value, kind=kind, target=target, number=number, lists=lists)
        )

    taken: dict[tuple[str, str], str] = {}
    # Also a buffer of which only the new content counts, such as a vector of spectral_norm.
    written_later = {(kind, target) for _, kind, target in ends.outputs if kind == "buffer"}
    for node, kind, target in ends.inputs:
        if (kind, target) in taken:  # another name of a shared tensor
            names[node] = taken[(kind, target)]
        elif kind == "tangent":  # the loss's gradient with respect to itself: one
            value = value_of(namer.free("loss_gradient"), node.meta["val"])
            names[node] = value.name
            nodes.append(_loss_gradient(value))
        elif node.users or kind in ("input", "target") or (kind, target) in written_later:
            add_input(node, kind, target, node.meta["val"])
            taken[(kind, target)] = names[node]

    regions = {name for name, _ in traced.named_modules()}
    for node in traced.graph.nodes:
        if node.op == "get_attr" and str(node.target) in regions:
            continue  # what calls it is not an operation on tensors, and is refused
        if node.op == "get_attr":
            target = str(node.target)
            if ("constant", target) in taken:  # read once more
                names[node] = taken[("constant", target)]
                continue
            constants[target] = attribute = _attribute(traced, target)
            add_input(node, "constant", target, attribute)
            taken[("constant", target)] = names[node]
        elif node.op == "call_function" and node.target.__name__ == "getitem":
            if node.users:
                names[node] = names[(node.args[0], node.args[1])]
        elif node.op == "call_function" and "_assert_" in str(node.target):
            continue  # torch.export's check of what the graph already states; it returns nothing
        elif node.op == "call_function" and "_linalg_check_errors" in str(node.target):
            continue  # the same of a solver's error codes
        elif node.op == "call_function":
            nodes.append(_node(node, names, namer))

    results: dict[tuple[str, str], str] = {}
    for output, kind, target in ends.outputs:
        if kind == "gradient" and (kind, target) in results:
            nodes.append(_sum(results[(kind, target)], names[output], output.meta["val"], namer))
            results[(kind, target)] = nodes[-1].name
        else:
            results[(kind, target)] = names[output]
    outputs = [
        GraphOutput(name=found, kind=kind, target=target)  # type: ignore[arg-type]
        for (kind, target), found in results.items()
    ]
    seconds = time.perf_counter() - start
    graph = Graph(
        name=namer.identifier(f"{name}_{mode}"),
        mode=mode,
        inputs=tuple(graph_inputs),
        nodes=tuple(nodes),
        outputs=tuple(outputs),
        history=(PassRecord(name="capture", seconds=seconds, nodes=len(nodes)),),
    )
    return Captured(graph, used_constants)


def _number(tensor: Tensor) -> bool | int | float | None:
    """Number in a tensor without axes, if it is finite."""
    if tensor.dim() or tensor.is_complex():
        return None
    number: bool | int | float = tensor.item()
    return number if math.isfinite(number) else None


def _listed(tensor: Tensor) -> str:
    """The 8-bit type all of whose numbers a tensor has, in the order of their bits and with zero
    for NaN; empty if there is none."""
    if tensor.shape != (256,) or tensor.dtype not in (torch.float32, torch.float64):
        return ""
    every = torch.arange(256, dtype=torch.uint8).view(getattr(torch, E4M3)).to(tensor.dtype)
    return E4M3 if torch.equal(tensor.cpu(), every.nan_to_num()) else ""


def _node(node: fx.Node, names: dict[fx.Node | tuple[fx.Node, int], str], namer: Namer) -> Node:
    if not isinstance(node.target, torch._ops.OpOverload):
        raise GolowError(
            f"the captured graph has {node.target} at {node.name}, which is not an operation on "
            "tensors",
            "the levels that need a graph do not support control flow operators (while_loop, "
            "scan) yet.",
        )
    module, phase = _place(node)
    op = str(node.target)
    base = namer.node(op, module, phase)
    result = node.meta["val"]
    several = isinstance(result, (tuple, list))
    read = {user.args[1] for user in node.users if user.users} if several else set()
    outputs: list[Value | None] = []
    for index, tensor in enumerate(result if several else (result,)):
        if several and index not in read:
            outputs.append(None)
            continue
        value = value_of(namer.free(base if index == 0 else f"{base}_{index}"), tensor)
        names[(node, index) if several else node] = value.name
        outputs.append(value)
    translated = Node(
        name=base,
        op=op,
        arguments=tuple(argument(a, names) for a in node.args),
        keywords={k: argument(a, names) for k, a in node.kwargs.items()},
        outputs=tuple(outputs),
        several=several,
        module=module,
        phase=phase,
    )
    return in_vocabulary(translated)


def _place(node: fx.Node) -> tuple[str, Phase]:
    """Path of the layer and phase, from torch.export's or from our own annotation."""
    phase: Phase = "backward" if node.meta.get("partitioner_tag") == "is_backward" else "forward"
    stack = node.meta.get("nn_module_stack")
    if stack:
        return str(list(stack.values())[-1][0]), phase
    return str((node.meta.get("custom") or {}).get("module", "")), phase


def argument(given: Any, names: Mapping[Any, str]) -> Argument:
    """An argument of an fx node, its nodes as values by these names. Raises `GolowError` for what a
    graph cannot hold."""
    if isinstance(given, (list, tuple)):
        return tuple(_scalar(item, names) for item in given)
    return _scalar(given, names)


def _scalar(item: Any, names: Mapping[Any, str]) -> Scalar:
    if isinstance(item, fx.Node):
        return Ref(name=names[item])
    if isinstance(item, torch.dtype):
        return Symbol(kind="dtype", name=_short(item))
    if isinstance(item, torch.layout):
        return Symbol(kind="layout", name=_short(item))
    if isinstance(item, torch.memory_format):
        return Symbol(kind="memory_format", name=_short(item))
    if isinstance(item, torch.device):
        return Symbol(kind="device", name=str(item))
    if isinstance(item, float):
        return as_number(item)
    if item is None or isinstance(item, (bool, int, str)):
        return item
    raise GolowError(f"the captured graph has an argument of type {type(item).__name__}: {item!r}")


def _loss_gradient(value: Value) -> Node:
    empty = Node(name=value.name, op="", arguments=(), phase="backward")
    return written(empty, LossGradient(dtype=value.dtype), outputs=(value,))


def _sum(one: str, other: str, tensor: Tensor, namer: Namer) -> Node:
    """The gradient of a tensor that two parameters share."""
    value = value_of(namer.free(f"{one}_shared"), tensor)
    return Node(
        name=value.name,
        op="aten.add.Tensor",
        arguments=(Ref(name=one), Ref(name=other)),
        outputs=(value,),
        phase="backward",
    )


def value_of(name: str, tensor: Tensor) -> Value:
    """A tensor's shape and dtype under a name. Raises `GolowError` for what has no fixed shape."""
    if not isinstance(tensor, Tensor):
        raise GolowError(
            f"the model converts a tensor to a Python number ({name}) while it runs",
            "index or compute with the tensor itself, for example by index_select or torch.where.",
        )
    if any(isinstance(n, torch.SymInt) and n.node.maybe_as_int() is None for n in tensor.shape):
        raise GolowError(
            f"the size of {name} depends on the content of tensors",
            "the levels that need a graph need fixed shapes: masked_fill or torch.where in place "
            "of a selection by a mask keeps the shape.",
        )
    return Value(name=name, shape=tuple(int(n) for n in tensor.shape), dtype=_short(tensor.dtype))


def _short(symbol: object) -> str:
    return str(symbol).removeprefix("torch.")


def _attribute(module: fx.GraphModule, target: str) -> Tensor:
    found: Any = module
    for part in target.split("."):
        found = getattr(found, part)
    if not isinstance(found, Tensor):
        raise GolowError(f"the captured graph reads {target}, which is not a tensor")
    return found

"""Constant propagation of scalars: replaces tensors without axes that are always the same by
numbers.

A model writes ``scores / torch.sqrt(torch.tensor(64.0))``, or hides scores with a tensor that holds
the lowest float. As a number, a scale can go into the product, and a pass can see what is hidden.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref
from golow.lower.ir.operator import written
from golow.lower.ir.rewriting import Links, result, rewritten
from golow.lower.ir.verify import run_node
from golow.lower.operators.binary import Binary
from golow.lower.operators.fill import Fill
from golow.lower.operators.pointwise import Pointwise

COMMUTES = ("add", "multiply")
FUNCTIONS = (Binary.op(), Pointwise.op())
NUMBER_FIRST = (*COMMUTES, "subtract", "divide", "power", "minimum", "maximum")

Number = bool | int | float


def inline_numbers(graph: Graph) -> Graph:
    """Let functions of elements take numbers in place of tensors without axes that hold what is
    known: constants, and what functions make of them."""
    known = _known(graph)
    if not known:
        return graph
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        if (
            node.op not in FUNCTIONS
            or result(node) in known
            or known.keys().isdisjoint(node.references())
        ):
            continue
        made = _with_numbers(Binary.of(node) or Pointwise.of(node), known, links)
        if made is not None:
            replaced[position] = (written(node, made),)
    return eliminate_dead_code(rewritten(graph, replaced))


def _known(graph: Graph) -> dict[str, Number]:
    """Numbers in tensors without axes, by name."""
    tensors = {
        item.value.name: torch.tensor(item.number, dtype=getattr(torch, item.value.dtype))
        for item in graph.inputs
        if item.number is not None
    }
    for node in graph.nodes:
        value = node.outputs[0] if node.outputs else None
        if value is not None and value.shape == () and _is_function(node, tensors):
            (tensors[value.name],) = run_node(node, tensors)
    return {name: tensor.item() for name, tensor in tensors.items() if not tensor.is_complex()}


def _is_function(node: Node, tensors: dict[str, Tensor]) -> bool:
    """True if it makes a number of what is known."""
    makes = node.op in FUNCTIONS or node.op == Fill.op()
    return makes and all(name in tensors for name in node.references())


def _with_numbers(
    record: Binary | Pointwise | None, known: dict[str, Number], links: Links
) -> Binary | Pointwise | None:
    """The function with numbers; None if it takes none there."""
    if not isinstance(record, Pointwise):
        return None if record is None else _binary(record, known, links)
    takes_all = record.function in NUMBER_FIRST  # others take a value as the first operand
    operands = tuple(
        known.get(item.name, item) if isinstance(item, Ref) and (index or takes_all) else item
        for index, item in enumerate(record.operands)
    )
    if operands == record.operands or not any(isinstance(item, Ref) for item in operands):
        return None
    return msgspec.structs.replace(record, operands=operands)


def _binary(record: Binary, known: dict[str, Number], links: Links) -> Binary | None:
    a, b = record.a, record.b
    if a.name in known and isinstance(b, Ref) and record.function in COMMUTES:
        a, b = b, a
    if not isinstance(b, Ref) or b.name not in known or a.name in known:
        return None
    number = float(known[b.name])
    by_zero = record.function == "divide" and number == 0
    if by_zero or not links.values[a.name].dtype.startswith("float"):
        return None
    return msgspec.structs.replace(record, a=a, b=number)

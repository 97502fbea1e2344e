"""Complex numbers in a captured graph's calls (``x * 1j``), which become constants of the graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx


def hold_complex_literals(traced: fx.GraphModule) -> None:
    """Replace each complex argument with a tensor without axes that the traced module holds."""
    for node in list(traced.graph.nodes):
        if node.op != "call_function" or not any(isinstance(a, complex) for a in node.args):
            continue
        target = _taking_tensors(node)
        if target is None:
            continue
        if not node.all_input_nodes and len(node.args) == 1:
            (item,) = node.args  # a conjugate in a backward pass
            value = target(torch.tensor(item, dtype=torch.complex64)).resolve_conj().item()
            node.replace_all_uses_with(_held(traced, node, value))
            traced.graph.erase_node(node)
        else:
            node.args = tuple(_held(traced, node, item) for item in node.args)
            node.target = target


def _held(traced: fx.GraphModule, node: fx.Node, item: Any) -> Any:
    if not isinstance(item, complex):
        return item
    name = f"complex_{len(list(traced.named_buffers()))}"
    traced.register_buffer(name, torch.tensor(item, dtype=torch.complex64))
    with traced.graph.inserting_before(node):
        return traced.graph.get_attr(name)


def _taking_tensors(node: fx.Node) -> Any:
    """The call's operator if it takes tensors where the complex arguments are, or its form that
    does; None if there is none."""
    operator: Any = node.target
    if not isinstance(operator, torch._ops.OpOverload):
        return None
    packet = operator.overloadpacket
    tensors = packet.Tensor if "Tensor" in packet.overloads() else None
    for form in (operator, tensors):
        slots = () if form is None else zip(form._schema.arguments, node.args, strict=False)
        if slots and all(
            str(slot.type) == "Tensor" for slot, item in slots if isinstance(item, complex)
        ):
            return form
    return None

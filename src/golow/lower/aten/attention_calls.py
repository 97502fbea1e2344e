"""Simplification of attention calls: drops known masks, shares key and value heads.

Models compute masks from positions alone, and repeat keys and values for query heads that share
them. What hides nothing, or what is ahead, needs no mask, and kernels let heads share by
themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Argument, Graph, Node, Ref
from golow.lower.ir.operator import PREFIX
from golow.lower.ir.rewriting import Links, changes_in_place, rewritten
from golow.lower.ir.spelling import Call, given_anew
from golow.lower.ir.verify import operation, run_node

WHOLE = "aten.scaled_dot_product_attention.default"
FORWARD = "aten._scaled_dot_product_flash_attention_for_cpu.default"
BACKWARD = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"
RESHAPES = ("aten.reshape.default", "aten.view.default", "aten._unsafe_view.default")
MOST_NODES, MOST_ELEMENTS = 200, 1 << 26  # of what makes a mask, and of each value there


def drop_known_masks(graph: Graph) -> Graph:
    """Take away masks that depend on nothing but positions, where they hide nothing, or where row i
    sees the first i + 1 keys, for which attention has a flag."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    found: dict[str, str] = {}
    for position, node in enumerate(graph.nodes):
        if node.op not in (WHOLE, FORWARD, BACKWARD):
            continue
        call = Call(node, links)
        mask = call.ref_or_none("attn_mask")
        if mask is None:
            continue
        kind = found.setdefault(mask.name, _kind(links, mask.name))
        if kind == "full" or (kind == "causal" and not call.flag("is_causal")):
            causal = kind == "causal" or call.flag("is_causal")
            replaced[position] = (given_anew(node, attn_mask=None, is_causal=causal),)
    return eliminate_dead_code(rewritten(graph, replaced)) if replaced else graph


def share_heads(graph: Graph) -> Graph:
    """Let query heads share keys and values that a network repeats for them, in inference."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        if node.op != WHOLE:
            continue
        call = Call(node, links)
        key, value = (_unrepeated(links, call.ref(name)) for name in ("key", "value"))
        if key is None or value is None:
            continue
        groups = {links.values[item.name].shape[1] for item in (key, value)}
        if len(groups) == 1 and not call.flag("enable_gqa"):
            replaced[position] = (given_anew(node, key=key, value=value, enable_gqa=True),)
    return eliminate_dead_code(rewritten(graph, replaced)) if replaced else graph


# ---------------------------------------------------------------- masks


def _kind(links: Links, name: str) -> str:
    """``full``, ``causal``, or nothing for another mask and for one that is not known."""
    mask = _known(links, name)
    if mask is None or mask.dim() < 2:
        return ""
    if mask.dtype != torch.bool:
        if bool(((mask != 0) & (mask != -math.inf)).any()):
            return ""
        mask = mask == 0
    if bool(mask.all()):
        return "full"
    rows, keys = mask.shape[-2:]
    below = torch.ones(rows, keys, dtype=torch.bool).tril()
    return "causal" if bool((mask == below).all()) else ""


def _known(links: Links, name: str) -> Tensor | None:
    """The value, if functions of numbers alone make it."""
    nodes = _made_of(links, name)
    if nodes is None:
        return None
    tensors: dict[str, Tensor] = {}
    with torch.no_grad():
        for node in nodes:
            for value, tensor in zip(node.outputs, run_node(node, tensors), strict=True):
                if value is not None:
                    tensors[value.name] = tensor
    return tensors[name]


def _made_of(links: Links, name: str) -> list[Node] | None:
    """The nodes that make the value, in order; None if one of them reads what is not known."""
    wanted, positions = [name], set[int]()
    while wanted:
        maker = links.maker.get(wanted.pop())
        if maker is None or len(positions) > MOST_NODES or not _is_known(links, maker):
            return None
        if maker not in positions:
            positions.add(maker)
            wanted += links.nodes[maker].references()
    return [links.nodes[position] for position in sorted(positions)]


def _is_known(links: Links, position: int) -> bool:
    """True if the node is a function whose values are not too large."""
    node = links.nodes[position]
    if node.op.startswith(PREFIX) or changes_in_place(node):
        return False
    overload = operation(node.op)
    drawn = torch.Tag.nondeterministic_seeded in overload.tags
    sizes = (math.prod(value.shape) for value in node.outputs if value is not None)
    return not overload._schema.is_mutable and not drawn and max(sizes, default=0) <= MOST_ELEMENTS


# ---------------------------------------------------------------- heads


def _unrepeated(links: Links, heads: Ref) -> Ref | None:
    """[B, G, S, D], of which each head is repeated in [B, H, S, D]; None for others."""
    shape = links.values[heads.name].shape
    chain = list(_repeating(links, heads))
    if not chain or len(shape) != 4:
        return None
    source = chain[-1]
    images, groups, *rest = links.values[source.name].shape
    times = shape[1] // groups
    wide = [links.values[item.name].shape for item in chain[:-1]]
    right = [(images, groups, times, *rest), (images, groups, 1, *rest)]
    return source if wide == right and shape == (images, groups * times, *rest) else None


def _repeating(links: Links, heads: Ref) -> Iterator[Ref]:
    """Source of a reshape, an expansion and a further axis, one after the other."""
    argument: Argument = heads
    for ops in (RESHAPES, ("aten.expand.default",), ("aten.unsqueeze.default",)):
        maker = links.made_by(argument, *ops)
        if maker is None:
            return
        argument = links.nodes[maker].arguments[0]
        if isinstance(argument, Ref):
            yield argument

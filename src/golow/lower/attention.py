"""The pass that keeps attention whole, for a level that has a kernel for it."""

from __future__ import annotations

import math

import msgspec

from golow.lower.decomposition import lenient
from golow.lower.graph import Graph, Node, Ref, Value
from golow.lower.operator import Operator, written
from golow.lower.operators.attention import Attention, AttentionBackward
from golow.lower.operators.expand import Expand
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.reduce import Reduce
from golow.lower.rewriting import Links, rewritten
from golow.lower.spelling import Call

WHOLE = "aten.scaled_dot_product_attention.default"
FORWARD = "aten._scaled_dot_product_flash_attention_for_cpu.default"
BACKWARD = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"

MOST_WIDTH, WIDTH_STEP = 128, 8
"""Widths of a head for which cuDNN has forward and backward kernels on every GPU since Ampere."""
NARROW = 64
"""The largest width of a head for which golow has kernels of float32 in both directions."""
HIDDEN = -3e4
"""What is added to a score that must not be seen: no weight is left of it. Finite in every type, so
that a row in which everything is hidden is finite, too; the row is set to zero afterwards."""


def keep_attention(graph: Graph) -> Graph:
    """Make attention one operator, forward and backward, where flash attention computes it: without
    dropout, four axes, heads of at most 128 elements. A mask becomes numbers that are added to the
    scores, once for all layers that share it. What is left is unfolded."""
    return _kept_up_to(MOST_WIDTH, graph)


def keep_narrow_attention(graph: Graph) -> Graph:
    """The same for heads of at most 64 elements."""
    return _kept_up_to(NARROW, graph)


def _kept_up_to(width: int, graph: Graph) -> Graph:
    graph = lenient(graph)
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    masks: dict[str, _Mask] = {}
    for position, node in enumerate(graph.nodes):
        if node.op in (WHOLE, FORWARD, BACKWARD):
            call = Call(node, links)
            if _fits(call, width):
                replaced[position] = _kept(node, call, masks)
    return rewritten(graph, replaced)


class _Mask:
    """The nodes that make of a mask what is added to scores, and which rows see anything."""

    def __init__(self, node: Node, mask: Value) -> None:
        self._like = msgspec.structs.replace(node, absorbed=())
        self.nodes: list[Node] = []
        name, shape = mask.name, mask.shape
        source = Ref(name=mask.name)
        if mask.dtype == "bool":
            choice = Pointwise(function="choose", operands=(source, 0.0, HIDDEN), dtype="float32")
            added = self._add(choice, f"{name}.added", shape, "float32")
            largest, least = added, HIDDEN
        else:
            finite = Pointwise(function="maximum", operands=(source, HIDDEN), dtype="float32")
            added = self._add(finite, f"{name}.added", shape, "float32")
            largest, least = source, -math.inf
        peak = Reduce(function="maximum", x=largest, axes=(len(shape) - 1,), keep=True)
        most = self._add(peak, f"{name}.most", (*shape[:-1], 1), "float32")
        sees = Pointwise(function="greater", operands=(most, least), dtype="bool")
        self.sees = self._add(sees, f"{name}.sees", (*shape[:-1], 1), "bool")
        wide = (*(1,) * (4 - len(shape)), *shape)
        self.added = self._add(Expand(x=added, shape=wide), f"{name}.wide", wide, "float32")

    def only_seen(self, node: Node, value: Ref, name: str, shape: tuple[int, ...]) -> Node:
        """The node that sets rows to zero that see nothing."""
        result = Value(name=name, shape=shape, dtype="float32")
        chosen = Pointwise(function="choose", operands=(self.sees, value, 0.0), dtype="float32")
        return written(node, chosen, name=f"{name}.seen", outputs=(result,))

    def _add(self, operator: Operator, name: str, shape: tuple[int, ...], dtype: str) -> Ref:
        made = Value(name=name, shape=shape, dtype=dtype)
        self.nodes.append(written(self._like, operator, name=name, outputs=(made,)))
        return Ref(name=name)


def _kept(node: Node, call: Call, masks: dict[str, _Mask]) -> tuple[Node, ...]:
    """The operator, with what its mask needs before and after it."""
    given = call.ref_or_none("attn_mask")
    if given is None:
        return (_operator(node, call, None),)
    found = masks.get(given.name)
    mask = found or masks.setdefault(given.name, _Mask(node, call.value("attn_mask")))
    before = [] if found else mask.nodes
    kept = _operator(node, call, mask.added)
    if node.op == BACKWARD:
        gradient = call.value("grad_out")
        name = f"{node.name}.gradient"
        seen = mask.only_seen(node, call.ref("grad_out"), name, gradient.shape)
        keywords = kept.keywords | {"gradient": Ref(name=name)}
        return (*before, seen, msgspec.structs.replace(kept, keywords=keywords))
    output, *others = kept.outputs
    if output is None:
        return (*before, kept)
    every = msgspec.structs.replace(output, name=f"{output.name}.all")
    seen = mask.only_seen(node, Ref(name=every.name), output.name, output.shape)
    return (*before, msgspec.structs.replace(kept, outputs=(every, *others)), seen)


def _operator(node: Node, call: Call, added: Ref | None) -> Node:
    query, key, value = (call.ref(name) for name in ("query", "key", "value"))
    causal = call.flag("is_causal")
    scale = None if call.given("scale") is None else call.number("scale")
    if node.op == BACKWARD:
        backward = AttentionBackward(
            gradient=call.ref("grad_out"),
            query=query,
            key=key,
            value=value,
            output=call.ref("out"),
            logarithm=call.ref("logsumexp"),
            added=added,
            causal=causal,
            scale=scale,
        )
        return written(node, backward)
    forward = Attention(query=query, key=key, value=value, added=added, causal=causal, scale=scale)
    outputs = node.outputs if node.op == FORWARD else (*node.outputs, None)
    return written(node, forward, outputs=outputs)


def _mask_fits(call: Call) -> bool:
    """Whether cuDNN takes the mask: its rows begin at multiples of 16 bytes."""
    if call.ref_or_none("attn_mask") is None:
        return True
    mask, length = call.value("attn_mask"), call.value("key").shape[2]
    return (
        mask.dtype in ("bool", "float32")
        and 2 <= len(mask.shape) <= 4
        and mask.shape[-1] == length
        and length % WIDTH_STEP == 0
    )


def _fits(call: Call, most: int) -> bool:
    if call.number("dropout_p") != 0 or not _mask_fits(call):
        return False
    values = [call.value(name) for name in ("query", "key", "value")]
    if any(len(value.shape) != 4 or value.dtype != "float32" for value in values):
        return False
    query, key, value = (value.shape for value in values)
    return (
        query[0] == key[0] == value[0]
        and key[1] == value[1]
        and query[1] % key[1] == 0
        and all(width <= most and width % WIDTH_STEP == 0 for width in (query[3], value[3]))
    )

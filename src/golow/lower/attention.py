"""The pass that keeps attention whole, for a level that has a kernel for it."""

from __future__ import annotations

from golow.lower.decomposition import lenient
from golow.lower.graph import Graph, Node
from golow.lower.operator import written
from golow.lower.operators.attention import Attention, AttentionBackward
from golow.lower.rewriting import Links, rewritten
from golow.lower.spelling import Call

WHOLE = "aten.scaled_dot_product_attention.default"
FORWARD = "aten._scaled_dot_product_flash_attention_for_cpu.default"
BACKWARD = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"

MOST_WIDTH, WIDTH_STEP = 128, 8
"""Widths of a head for which cuDNN has forward and backward kernels on every GPU since Ampere."""


def keep_attention(graph: Graph) -> Graph:
    """Make attention one operator, forward and backward, where flash attention computes it: without
    mask and dropout, four axes, heads of at most 128 elements. What is left is unfolded."""
    graph = lenient(graph)
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        if node.op in (WHOLE, FORWARD, BACKWARD):
            call = Call(node, links)
            if _fits(call):
                replaced[position] = (_kept(node, call),)
    return rewritten(graph, replaced)


def _kept(node: Node, call: Call) -> Node:
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
            causal=causal,
            scale=scale,
        )
        return written(node, backward)
    forward = Attention(query=query, key=key, value=value, causal=causal, scale=scale)
    outputs = node.outputs if node.op == FORWARD else (*node.outputs, None)
    return written(node, forward, outputs=outputs)


def _fits(call: Call) -> bool:
    if call.ref_or_none("attn_mask") is not None or call.number("dropout_p") != 0:
        return False
    values = [call.value(name) for name in ("query", "key", "value")]
    if any(len(value.shape) != 4 or value.dtype != "float32" for value in values):
        return False
    query, key, value = (value.shape for value in values)
    return (
        query[0] == key[0] == value[0]
        and key[1] == value[1]
        and query[1] % key[1] == 0
        and all(width <= MOST_WIDTH and width % WIDTH_STEP == 0 for width in (query[3], value[3]))
    )

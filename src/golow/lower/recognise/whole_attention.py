"""Attention as one operator: kept whole, for a level that has a kernel for it."""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

import msgspec

from golow.lower.aten.attention_calls import BACKWARD, FORWARD, WHOLE
from golow.lower.aten.decomposition import lenient
from golow.lower.aten.dropped_attention_calls import KEPT
from golow.lower.decompositions.attention import DROPPED, DROPPED_BACKWARD
from golow.lower.ir.graph import Argument, Graph, Node, Pass, Ref, Value
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.rewriting import Links, Names, rewritten
from golow.lower.ir.spelling import Call
from golow.lower.operators.attention import Attention, AttentionBackward
from golow.lower.operators.dropout import Dropout
from golow.lower.operators.expand import Expand
from golow.lower.operators.fill import Fill
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.reshape import Reshape

Shape = tuple[int, ...]


class Kernels(NamedTuple):
    """Attention that the kernels support. width: of a head at most, a multiple of step. rows: of
    the query, at least. every_row: each row of scores has its own of what is added, even if all
    are the same. rounds: what is added is rounded to 16 bits; so does PyTorch in its own attention,
    but not where a network adds it itself. masked: keys at most of a mask of truth values that they
    take as it is, and set rows that see nothing to zero.
    """

    width: int
    step: int = 8
    rows: int = 1
    every_row: bool = False
    rounds: bool = False
    masked: int = 0

    def take(self, query: Shape, key: Shape, value: Shape) -> bool:
        """True if they compute it; the shapes are [B, H, L, E], [B, G, S, E] and [B, G, S, D]."""
        return (
            query[0] == key[0] == value[0]
            and key[1] == value[1]
            and query[1] % key[1] == 0
            and query[2] >= self.rows
            and all(
                width <= self.width and width % self.step == 0 for width in (query[3], value[3])
            )
        )


CUDNN = Kernels(width=128, rounds=True, masked=256)
"""On every GPU since Ampere, in both directions. It takes no masks of truth values; golow's kernel,
which does, is slower for more keys by more than what the library's needs beside it: by published
rates, a launch and a pass over the result."""
CUDNN_IN_TRAINING = CUDNN._replace(every_row=True, masked=0)
"""cuDNN 9.19 takes one row for all here, too, but with a mask of padding gradients were off by 5%
of their size then."""
LOWEST = -1e30
"""Term that networks add where they hide scores themselves, in float32: nothing is left of a score
beside it, so that a row in which everything is hidden has equal weights, as by the network's
number."""
HIDDEN = -3e4
"""Term added to a score that must not be seen: no weight is left of it. Finite in every type, so
that a row in which everything is hidden is finite, too; the row is set to zero afterwards."""


DROPPING = Kernels(width=64, masked=sys.maxsize)
"""golow's own kernels in training, which take masks of truth values, and those of dropout."""
FORWARDS, BACKWARDS = (WHOLE, FORWARD, DROPPED), (BACKWARD, DROPPED_BACKWARD)


def keep_attention(kernels: Kernels, dropping: Kernels | None = None) -> Pass:
    """The pass that makes attention one operator, forward and backward, where these kernels compute
    it: of four axes. dropping: those of attention with dropout. What is left is unfolded."""

    def keep_attention_whole(graph: Graph) -> Graph:
        """Make attention one operator. A mask becomes numbers that are added to the scores, once
        for all layers that share it."""
        graph = lenient(graph)
        links, names = Links(graph), Names(graph)
        replaced: dict[int, tuple[Node, ...]] = {}
        masks: dict[tuple[str, int], _Mask] = {}
        for position, node in enumerate(graph.nodes):
            own = dropping if node.op in (DROPPED, DROPPED_BACKWARD) else kernels
            known = node.op in FORWARDS + BACKWARDS
            if known and own is not None and _fits(Call(node, links), own):
                kept = _kept(links, position, masks, own, names)
                drawn = _drawn(node, Call(node, links), names) if node.op == DROPPED else ()
                replaced[position] = (*drawn, *kept)
        return rewritten(graph, replaced)

    return keep_attention_whole


class _Mask:
    """The nodes that make of a mask what is added to scores, and which rows see anything."""

    def __init__(self, node: Node, mask: Value, rows: int) -> None:
        self._like = msgspec.structs.replace(node, absorbed=())
        self.nodes: list[Node] = []
        name, shape = f"{mask.name}.{rows}", mask.shape
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
        wide = (*(1,) * (4 - len(shape)), *shape[:-2], rows, shape[-1])
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


def _kept(
    links: Links, position: int, masks: dict[tuple[str, int], _Mask], kernels: Kernels, names: Names
) -> tuple[Node, ...]:
    """The operator, with what its mask needs before and after it."""
    node, call = links.nodes[position], Call(links.nodes[position], links)
    if call.ref_or_none("attn_mask") is None:
        return (_operator(node, call, None),)
    given = call.value("attn_mask")
    truth = _truth_values(links, given)
    if truth is not None and given.shape[-1] <= kernels.masked:
        return _hiding(node, call, truth, names)
    rows = call.value("query").shape[2] if kernels.every_row else given.shape[-2]
    found = masks.get((given.name, rows))
    mask = found or masks.setdefault((given.name, rows), _Mask(node, given, rows))
    before = [] if found else mask.nodes
    kept = _operator(node, call, mask.added)
    if node.op in BACKWARDS:
        gradient = call.value("grad_out")
        name = names.free(f"{node.name}.gradient")
        seen = mask.only_seen(node, call.ref("grad_out"), name, gradient.shape)
        keywords = kept.keywords | {"gradient": Ref(name=name)}
        return (*before, seen, msgspec.structs.replace(kept, keywords=keywords))
    output, *others = kept.outputs
    if output is None:
        return (*before, kept)
    every = msgspec.structs.replace(output, name=f"{output.name}.all")
    seen = mask.only_seen(node, Ref(name=every.name), output.name, output.shape)
    return (*before, msgspec.structs.replace(kept, outputs=(every, *others)), seen)


def _truth_values(links: Links, mask: Value) -> Value | None:
    """The mask, or the one of which its numbers are made, 0 and minus infinity, as PyTorch makes
    them in training; None for other numbers."""
    if mask.dtype == "bool":
        return mask
    maker = links.made_by(Ref(name=mask.name), "aten.where.self")
    if maker is None:
        return None
    seen, zero, hidden = links.nodes[maker].arguments
    if not isinstance(seen, Ref) or (_number(links, zero), _number(links, hidden)) != (
        0,
        -math.inf,
    ):
        return None
    found = links.values[seen.name]
    return found if found.shape == mask.shape else None


def _number(links: Links, argument: Argument) -> float | None:
    """The number that a tensor of one element is made of."""
    maker = links.made_by(argument, "aten.scalar_tensor.default")
    return None if maker is None else Call(links.nodes[maker], links).number("s")


def _hiding(node: Node, call: Call, mask: Value, names: Names) -> tuple[Node, ...]:
    """The operator with the mask of truth values, as four axes."""
    shape = (*(1,) * (4 - len(mask.shape)), *mask.shape)
    if shape == mask.shape:
        return (_operator(node, call, Ref(name=mask.name)),)
    wide = Value(name=names.free(f"{mask.name}.wide"), shape=shape, dtype="bool")
    view = Reshape(x=Ref(name=mask.name), shape=shape)
    before = written(
        msgspec.structs.replace(node, absorbed=()), view, name=wide.name, outputs=(wide,)
    )
    return (before, _operator(node, call, Ref(name=wide.name)))


def _drawn(node: Node, call: Call, names: Names) -> tuple[Node, ...]:
    """The nodes that draw which weights are kept: dropout of ones that are not in memory."""
    output, kept = node.outputs[0], node.outputs[KEPT]
    if output is None or kept is None:
        return ()
    inner = msgspec.structs.replace(node, absorbed=())
    shapes = {"ones": (1,) * len(kept.shape), "ones.wide": kept.shape}
    one, wide = (
        Value(name=names.free(f"{kept.name}.{name}"), shape=shape, dtype="float32")
        for name, shape in shapes.items()
    )
    chance = call.number("dropout_p")
    return (
        written(inner, Fill(shape=one.shape, value=1.0, dtype="float32"), name=one.name,
                outputs=(one,)),
        written(inner, Expand(x=Ref(name=one.name), shape=wide.shape), name=wide.name,
                outputs=(wide,)),
        written(inner, Dropout(x=Ref(name=wide.name), probability=chance), name=kept.name,
                outputs=(None, kept)),
    )  # fmt: skip


def _operator(node: Node, call: Call, added: Ref | None) -> Node:
    query, key, value = (call.ref(name) for name in ("query", "key", "value"))
    causal = call.flag("is_causal")
    scale = None if call.given("scale") is None else call.number("scale")
    kept, probability = None, 0.0
    if node.op in (DROPPED, DROPPED_BACKWARD):
        probability = call.number("dropout_p")
        drawn = node.outputs[KEPT] if node.op == DROPPED else call.value("kept")
        kept = None if drawn is None else Ref(name=drawn.name)
    if node.op in BACKWARDS:
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
            kept=kept,
            probability=probability,
        )
        return written(node, backward)
    forward = Attention(
        query=query,
        key=key,
        value=value,
        added=added,
        causal=causal,
        scale=scale,
        kept=kept,
        probability=probability,
    )
    outputs = (*node.outputs, None) if node.op == WHOLE else node.outputs[:2]
    return written(node, forward, outputs=outputs)


def _fits(call: Call, kernels: Kernels) -> bool:
    values = [call.value(name) for name in ("query", "key", "value")]
    drops = call.node.op not in (DROPPED, DROPPED_BACKWARD) and call.number("dropout_p") != 0
    if drops or any(len(value.shape) != 4 or value.dtype != "float32" for value in values):
        return False
    query, key, value = (value.shape for value in values)
    if call.ref_or_none("attn_mask") is not None:
        mask = call.value("attn_mask")
        if mask.dtype not in ("bool", "float32") or not 2 <= len(mask.shape) <= 4:
            return False
        if mask.shape[-1] != key[2]:
            return False
    return kernels.take(query, key, value)

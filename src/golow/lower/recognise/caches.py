"""Caches of keys and values that a step of a language model keeps as state: their updates, and
attention over what is in them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache

from golow.lower.aten.attention_calls import WHOLE
from golow.lower.aten.functional import make_functional
from golow.lower.aten.strided import stride_over_whole_memory
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.rewriting import Links, rewritten
from golow.lower.ir.spelling import Call, NotSpelledError
from golow.lower.operators.cache_update import CacheUpdate
from golow.lower.operators.cached_attention import CachedAttention
from golow.lower.recognise.positions import Places, Seen, places_of, seen_by

COPY, PUT = "aten.index_copy.default", "aten.index_put.default"
SCATTER = "aten.scatter.src"


def keep_caches(graph: Graph) -> Graph:
    """Name the updates of caches that the graph returns as state, and attention over them, where a
    mask lets each row see what was written up to itself."""
    if graph.mode != "infer" or not any(item.kind == "buffer" for item in graph.outputs):
        return graph
    graph = make_functional(stride_over_whole_memory(graph))
    links, replaced = Links(graph), dict[int, tuple[Node, ...]]()

    @cache
    def seen_from(mask: str) -> Seen | None:
        return seen_by(graph, mask)

    for position, node in enumerate(graph.nodes):
        found: Operator | None = None
        with suppress(NotSpelledError):
            if node.op in (COPY, PUT, SCATTER):
                found = _update(graph, Call(node, links))
            elif node.op == WHOLE:
                found = _attention(Call(node, links), seen_from)
        if found is not None:
            replaced[position] = (written(node, found),)
    return eliminate_dead_code(rewritten(graph, replaced)) if replaced else graph


def _update(graph: Graph, call: Call) -> CacheUpdate | None:
    """``index_copy(self, dim, index, source)``, ``index_put(self, indices, values)`` with one
    index, or ``scatter(self, dim, index, src)`` of whole rows, if these follow one another from a
    position of the graph on, in a scatter from that of their text."""
    if call.node.op == SCATTER:
        return _scattered(graph, call)
    if call.node.op == COPY:
        axis, index, rows = call.axis("dim"), call.given("index"), call.value("source")
    else:
        indices, rows = call.given("indices"), call.value("values")
        if not isinstance(indices, tuple) or call.flag("accumulate"):
            return None
        axis, index = len(indices) - 1, indices[-1] if indices else None
        if any(item is not None for item in indices[:-1]):
            return None
    if not isinstance(index, Ref):
        return None
    cache_shape, places = call.shape("self"), places_of(graph, index.name)
    if places is None or len(places.steps) != 1 or rows.dtype != call.value("self").dtype:
        return None
    count = rows.shape[axis] if len(rows.shape) == len(cache_shape) else 0
    if rows.shape != (*cache_shape[:axis], count, *cache_shape[axis + 1 :]) or not count:
        return None
    wanted = places._replace(constant=0, steps=(int(count > 1),), times=1, texts=(0,))
    if places != wanted or graph.values()[index.name].shape != (count,):
        return None
    position = Ref(name=places.position)
    return CacheUpdate(x=call.ref("self"), rows=Ref(name=rows.name), position=position, axis=axis)


def _scattered(graph: Graph, call: Call) -> CacheUpdate | None:
    axis, index, rows = call.axis("dim"), call.value("index"), call.value("src")
    whole, places = call.shape("self"), places_of(graph, index.name)
    if places is None or index.shape != rows.shape or rows.dtype != call.value("self").dtype:
        return None
    around = (*whole[:axis], rows.shape[axis], *whole[axis + 1 :])
    if rows.shape != around or not axis or graph.values()[places.position].shape[:1] != whole[:1]:
        return None
    steps = tuple(int(k == axis and size > 1) for k, size in enumerate(rows.shape))
    texts = (int(whole[0] > 1), *(0,) * (len(whole) - 1))
    if places != Places(0, steps, places.position, 1, texts):
        return None
    position = Ref(name=places.position)
    return CacheUpdate(x=call.ref("self"), rows=call.ref("src"), position=position, axis=axis)


def _attention(call: Call, seen_from: Callable[[str], Seen | None]) -> CachedAttention | None:
    """``scaled_dot_product_attention`` in which each row sees the keys up to itself. seen_from: as
    `seen_by`."""
    if call.ref_or_none("attn_mask") is None or call.flag("is_causal"):
        return None
    query, key, value, mask = (call.shape(name) for name in ("query", "key", "value", "attn_mask"))
    if not len(query) == len(key) == len(value) == 4 or call.number("dropout_p") != 0:
        return None
    alike = key == (query[0], key[1], key[2], query[3]) and value[:3] == key[:3]
    shares = query[1] == key[1] or (call.flag("enable_gqa") and query[1] % key[1] == 0)
    floating = all(call.value(name).dtype == "float32" for name in ("query", "key", "value"))
    if not (alike and shares and floating and mask[-2:] == (query[2], key[2])):
        return None
    seen = seen_from(call.ref("attn_mask").name)
    if seen is None:
        return None
    return CachedAttention(
        query=call.ref("query"),
        key=call.ref("key"),
        value=call.ref("value"),
        position=Ref(name=seen.position),
        window=seen.window,
        scale=None if call.given("scale") is None else call.number("scale"),
    )

"""A decoding step's attention: the rows that are written into both caches, the rotation of query
and key, and attention itself become one operator, whose kernel reads the caches once."""

from __future__ import annotations

import math
from typing import NamedTuple

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref
from golow.lower.ir.operator import written
from golow.lower.ir.rewriting import Links, absorbing, rewritten
from golow.lower.operators.cache_update import CacheUpdate
from golow.lower.operators.cached_attention import CachedAttention
from golow.lower.operators.step_attention import StepAttention
from golow.lower.recognise.rotations import Rotation, rotation

WIDTHS = (32, 64, 128)  # of heads: lanes of a warp share a row evenly


class _Written(NamedTuple):
    """A cache and its new rows: the position of the update, and its arguments."""

    at: int
    update: CacheUpdate


def attend_in_steps(graph: Graph) -> Graph:
    """Make attention of one new token over caches, and the updates of these, `StepAttention`s."""
    links, replaced = Links(graph), dict[int, tuple[Node, ...]]()
    for position, node in enumerate(graph.nodes):
        attention = CachedAttention.of(node)
        if attention is None or links.values[attention.query.name].shape[2] != 1:
            continue
        if math.prod(links.values[attention.position.name].shape) > 1:
            continue
        keys, values = (_written(links, attention, r) for r in (attention.key, attention.value))
        shapes = [links.values[item.name].shape for item in (attention.key, attention.value)]
        if keys is None or values is None or shapes[0] != shapes[1] or shapes[0][3] not in WIDTHS:
            continue
        turns = _rotations(links, attention.query, keys.update.rows)
        query, key = turns or (attention.query, keys.update.rows)
        operator = StepAttention(
            query=query.x if isinstance(query, Rotation) else query,
            key=key.x if isinstance(key, Rotation) else key,
            value=values.update.rows,
            keys=keys.update.x,
            values=values.update.x,
            position=attention.position,
            cosine=query.cosine if isinstance(query, Rotation) else None,
            sine=query.sine if isinstance(query, Rotation) else None,
            scale=attention.scale,
            window=attention.window,
        )
        updates = [links.nodes[item.at] for item in (keys, values)]
        outputs = (node.outputs[0], updates[0].outputs[0], updates[1].outputs[0])
        absorbed = absorbing(node, *updates)
        replaced |= {item.at: () for item in (keys, values)}
        replaced[position] = (written(node, operator, outputs=outputs, absorbed=absorbed),)
    return eliminate_dead_code(rewritten(graph, replaced)) if replaced else graph


def _written(links: Links, attention: CachedAttention, cache: Ref) -> _Written | None:
    """The update that makes a cache which only this attention reads, and the graph returns."""
    at = links.made_by(cache, CacheUpdate.op())
    update = None if at is None else CacheUpdate.of(links.nodes[at])
    if at is None or update is None or len(links.readers[cache.name]) != 1:
        return None
    first = update.x.name not in links.maker and links.readers[update.x.name] == [at]
    same = update.axis == 2 and update.position == attention.position
    return _Written(at, update) if first and same else None


def _rotations(links: Links, query: Ref, key: Ref) -> tuple[Rotation, Rotation] | None:
    """Rotations of both by the same angles, which are one row's."""
    one, other = rotation(links, query), rotation(links, key)
    if one is None or other is None or one[1:] != other[1:]:
        return None
    width = links.values[query.name].shape[-1]
    angles = [links.values[item.name].shape for item in one[1:]]
    return (one, other) if all(math.prod(shape) == width for shape in angles) else None

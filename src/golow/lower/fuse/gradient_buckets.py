"""Gradient buckets: in a data-parallel training, adds the mean of all gradients over the ranks.

Gradients are averaged in buckets, in the order in which the backward pass makes them, so that the
ranks exchange a bucket while the rest of the pass is computed. The sizes are those of PyTorch's
DistributedDataParallel: https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from golow.lower.analysis.joined_parameters import joined_parameters
from golow.lower.ir.graph import Graph, GraphOutput, Node, Ref
from golow.lower.ir.operator import written
from golow.lower.ir.rewriting import Links, Names
from golow.lower.operators.all_reduce import AllReduce

FIRST_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20
"""Sizes of full buckets, as float32. The first one is small, so that the exchange begins early."""
ITEM_BYTES = 4


def average_gradients(
    graph: Graph, ranks: int, first: int = FIRST_BYTES, size: int = BUCKET_BYTES
) -> Graph:
    """Put the mean over that many ranks between each gradient and what reads it. first, size: bytes
    from which on a bucket is full."""
    links, names = Links(graph), Names(graph)
    parameters = {item.target: item.value for item in graph.inputs if item.kind == "parameter"}
    gradients = [item for item in graph.outputs if item.kind == "gradient"]
    gradients.sort(key=lambda item: links.maker[item.name])
    means: dict[str, str] = {}  # by target
    after: dict[int, list[Node]] = {}
    together = {t: item.targets for item in joined_parameters(graph) for t in item.targets}
    for bucket in _buckets(gradients, links, together, first, size):
        for item in bucket:
            means[item.target] = names.free(f"{parameters[item.target].name}_mean")
        made = [
            msgspec.structs.replace(links.values[item.name], name=means[item.target])
            for item in bucket
        ]
        operator = AllReduce(gradients=tuple(Ref(name=item.name) for item in bucket), ranks=ranks)
        empty = Node(name=names.free("bucket"), op="", arguments=(), phase="backward")
        position = max(links.maker[item.name] for item in bucket)
        after.setdefault(position, []).append(written(empty, operator, outputs=tuple(made)))
    nodes = [n for k, node in enumerate(graph.nodes) for n in (node, *after.get(k, ()))]
    outputs = [
        msgspec.structs.replace(item, name=means[item.target]) if item.kind == "gradient" else item
        for item in graph.outputs
    ]
    return msgspec.structs.replace(graph, nodes=tuple(nodes), outputs=tuple(outputs))


def _buckets(
    gradients: Sequence[GraphOutput],
    links: Links,
    together: Mapping[str, Sequence[str]],
    first: int,
    size: int,
) -> Iterator[list[GraphOutput]]:
    """together: the parameters whose gradients are in one bucket, by each of them."""
    bucket: list[GraphOutput] = []
    filled, full = 0, first
    waiting: set[str] = set()
    for item in gradients:
        waiting.update(together.get(item.target, ()))
        bucket.append(item)
        filled += ITEM_BYTES * math.prod(links.values[item.name].shape)
        if filled >= full and waiting.issubset(one.target for one in bucket):
            yield bucket
            bucket, filled, full = [], 0, size
            waiting.clear()
    if bucket:
        yield bucket

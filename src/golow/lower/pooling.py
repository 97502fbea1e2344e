"""A pass that makes the mean over an image a pooling, for which libraries have faster code than for
reductions."""

from __future__ import annotations

import msgspec

from golow.lower.graph import Graph, Ref
from golow.lower.operator import written
from golow.lower.operators.adaptive_average_pool import AdaptiveAveragePool
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.reshape import Reshape
from golow.lower.patterns import Found, Fusion, Match, Rule, fuse, node

IMAGE_AXES = (2, 3)


def pool_images(graph: Graph) -> Graph:
    """Turn the mean over height and width into pooling to one pixel."""
    return fuse(graph, IMAGE_MEAN)


def _pooled(match: Match) -> list[Fusion]:
    found, mean = match["mean"], match.arguments("mean", Reduce)
    pool = AdaptiveAveragePool(x=mean.x, size=(1, 1))
    if mean.keep:
        return [Fusion(pool, "mean", (), "mean", found.node.outputs)]
    name, shape = f"{found.output.name}_pooled", found.shape(mean.x)
    value = msgspec.structs.replace(found.output, name=name, shape=(*shape[:2], 1, 1))
    before = written(found.node, pool, name=name, outputs=(value,))
    flat = Reshape(x=Ref(name=name), shape=found.output.shape)
    return [Fusion(flat, "mean", (), "mean", found.node.outputs, (before,))]


def _of_an_image(found: Found) -> bool:
    mean = found.arguments
    return isinstance(mean, Reduce) and len(found.shape(mean.x)) == 4


IMAGE_MEAN = Rule(
    [node("mean", Reduce, function="mean", axes=IMAGE_AXES, where=_of_an_image)], _pooled
)

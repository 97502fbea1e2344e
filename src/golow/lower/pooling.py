"""Passes that make the mean over an image a pooling, for which libraries have faster code than for
reductions."""

from __future__ import annotations

import msgspec

from golow.lower.graph import Graph, Ref
from golow.lower.operator import written
from golow.lower.operators.adaptive_average_pool import AdaptiveAveragePool
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.reshape import Reshape
from golow.lower.patterns import Found, Fusion, Match, Pattern, Rule, fuse, node


def pool_images(graph: Graph) -> Graph:
    """Turn the mean over height and width into pooling to one pixel."""
    return fuse(fuse(graph, GLOBAL_POOLING), FLAT_POOLING)


def _mean_of_an_image(keep: bool) -> Pattern:
    return node("mean", Reduce, function="mean", axes=(2, 3), keep=keep, where=_of_an_image)


def _of_an_image(found: Found) -> bool:
    return isinstance(found.arguments, Reduce) and len(found.shape(found.arguments.x)) == 4


def _pooled(match: Match) -> list[Fusion]:
    pool = AdaptiveAveragePool(x=match.arguments("mean", Reduce).x, size=(1, 1))
    return [Fusion(pool, "mean", (), "mean", match["mean"].node.outputs)]


def _pooled_flat(match: Match) -> list[Fusion]:
    found, x = match["mean"], match.arguments("mean", Reduce).x
    name = f"{found.output.name}_pooled"
    value = msgspec.structs.replace(found.output, name=name, shape=(*found.shape(x)[:2], 1, 1))
    pool = AdaptiveAveragePool(x=x, size=(1, 1))
    before = written(found.node, pool, name=name, outputs=(value,))
    flat = Reshape(x=Ref(name=name), shape=found.output.shape)
    return [Fusion(flat, "mean", (), "mean", found.node.outputs, (before,))]


GLOBAL_POOLING = Rule([_mean_of_an_image(keep=True)], _pooled)
FLAT_POOLING = Rule([_mean_of_an_image(keep=False)], _pooled_flat)

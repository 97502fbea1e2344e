"""Peephole passes on pooling: one makes the mean over an image a pooling, for which libraries have
faster code than for reductions; the other leaves out what pools nothing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Operator, record_of, written
from golow.lower.ir.patterns import Fusion, Match, NodeMatch, Pattern, Rule, fuse, node
from golow.lower.ir.rewriting import rewritten
from golow.lower.operators.adaptive_average_pool import (
    AdaptiveAveragePool,
    AdaptiveAveragePoolBackward,
)
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.reshape import Reshape


def pool_images(graph: Graph) -> Graph:
    """Turn the mean over height and width into pooling to one pixel."""
    return fuse(fuse(graph, GLOBAL_POOLING), FLAT_POOLING)


def _mean_of_an_image(keep: bool) -> Pattern:
    return node("mean", Reduce, function="mean", axes=(2, 3), keep=keep, where=_of_an_image)


def _of_an_image(found: NodeMatch) -> bool:
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


def skip_idle_pooling(graph: Graph) -> Graph:
    """Make a view of pooling and reductions over single elements, as of an image of 32x32 pixels
    of which a network leaves one before the mean."""
    values, replaced = graph.values(), dict[int, tuple[Node, ...]]()
    for position, this in enumerate(graph.nodes):
        output = this.outputs[0] if len(this.outputs) == 1 else None
        source = _of_single_elements(record_of(this), values)
        if output is not None and source is not None:
            replaced[position] = (written(this, Reshape(x=source, shape=output.shape)),)
    return rewritten(graph, replaced) if replaced else graph


def _of_single_elements(operator: Operator | None, values: Mapping[str, Value]) -> Ref | None:
    """Value that the operator returns unchanged except for its shape; None if it does more."""
    if isinstance(operator, AdaptiveAveragePool):
        idle = values[operator.x.name].shape[2:] == operator.size
        return operator.x if idle else None
    if isinstance(operator, AdaptiveAveragePoolBackward):
        idle = values[operator.gradient.name].shape == operator.shape
        return operator.gradient if idle else None
    if isinstance(operator, Reduce):
        shape = values[operator.x.name].shape
        return operator.x if all(shape[axis] == 1 for axis in operator.axes) else None
    return None


GLOBAL_POOLING = Rule([_mean_of_an_image(keep=True)], _pooled)
FLAT_POOLING = Rule([_mean_of_an_image(keep=False)], _pooled_flat)

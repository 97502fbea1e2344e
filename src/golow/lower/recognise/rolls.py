"""Roll fusion: recognises a roll in slices that are joined again, for a level with a kernel for
it."""

from __future__ import annotations

from golow.lower.ir.graph import Graph, Node
from golow.lower.ir.operator import written
from golow.lower.ir.rewriting import Links, rewritten
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.roll import Roll
from golow.lower.operators.slice import Slice


def name_rolls(graph: Graph) -> Graph:
    """Make the end of an axis, joined with its beginning, one operation, and one of those along
    several axes that follow one another. Unused nodes are left in the graph."""
    links = Links(graph)
    found: dict[str, Roll] = {}
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        roll = _roll(links, node)
        if roll is None or node.outputs[0] is None:
            continue
        earlier = found.get(roll.x.name)
        if earlier is not None and roll.axes[0] not in earlier.axes:
            roll = _both(earlier, roll)
        found[node.outputs[0].name] = roll
        replaced[position] = (written(node, roll),)
    return rewritten(graph, replaced)


def _roll(links: Links, node: Node) -> Roll | None:
    """cat(x[start:], x[:start]) along one axis."""
    layer = Concatenate.of(node)
    if layer is None or len(layer.parts) != 2:
        return None
    end, beginning = (
        None if maker is None else Slice.of(links.nodes[maker])
        for maker in (links.maker.get(part.name) for part in layer.parts)
    )
    if end is None or beginning is None or end.x != beginning.x:
        return None
    size, start = links.values[end.x.name].shape[layer.axis], end.start
    wanted = ((layer.axis, start, size, 1), (layer.axis, 0, start, 1))
    parts = [(part.axis, part.start, part.stop, part.step) for part in (end, beginning)]
    if parts != list(wanted) or not 0 < start < size:
        return None
    return Roll(x=end.x, axes=(layer.axis,), starts=(start,))


def _both(first: Roll, then: Roll) -> Roll:
    """One roll along the axes of two."""
    axes = (*first.axes, *then.axes)
    starts = dict(zip(axes, (*first.starts, *then.starts), strict=True))
    order = tuple(sorted(axes))
    return Roll(x=first.x, axes=order, starts=tuple(starts[axis] for axis in order))

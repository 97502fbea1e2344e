"""In-place concatenation: which values may be stored in the memory of a concatenation from the
beginning, so that joining copies nothing."""

from __future__ import annotations

from typing import NamedTuple

from golow.lower.analysis.ranges import View
from golow.lower.ir.graph import Graph, Node, Ref
from golow.lower.ir.operator import is_view, record_of
from golow.lower.ir.rewriting import Links, result
from golow.lower.operators.attention import Attention, AttentionBackward
from golow.lower.operators.batch_norm import BatchNorm, BatchNormBackward
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.convolution import Convolution, ConvolutionBackward
from golow.lower.operators.fused import Fused
from golow.lower.operators.permute import Permute
from golow.lower.operators.resample import Resample
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.take import Take

# Operators that write their results with any strides, and how many nodes may be between it and the
# concatenation, whose whole memory the part would hold until then; views do not count. Many tables
# are looked up one after the other, and all of their rows are kept until they are joined.
WRITERS = {
    Fused.op(): 12,
    Attention.op(): 12,
    AttentionBackward.op(): 12,
    Resample.op(): 12,
    Take.op(): 100,
    Concatenate.op(): 12,
    BatchNorm.op(): 12,
    Convolution.op(): 12,
    ConvolutionBackward.op(): 12,
}
# Of these the results are written there only if all others that read them can read a range of an
# image, too: most layers want whole ones.
ALONE = {BatchNorm.op(), Convolution.op(), ConvolutionBackward.op()}


class Home(NamedTuple):
    """A place in another value's memory: from this index on, along an axis. views: of the value,
    one after the other, of which the last one is there. nested: the value is a concatenation, but
    no range of the other one."""

    whole: str
    axis: int
    start: int
    views: tuple[View, ...] = ()
    nested: bool = False


def homes(graph: Graph) -> dict[str, Home]:
    """Maps values to their places. A concatenation whose parts are neighbours in a later one, as
    in a block of DenseNet, is a range of it. A group of functions writes where it will be joined.
    """
    links = Links(graph)
    joined = [(p, node, Concatenate.of(node)) for p, node in enumerate(graph.nodes)]
    found: dict[str, Home] = {}
    later: list[tuple[str, Concatenate]] = []
    for position, node, operator in reversed(joined):
        if operator is None or not result(node):
            continue
        name = result(node)
        home = next((h for h in (_range(operator, *other, links) for other in later) if h), None)
        if home is not None and name not in links.returned:
            outer = found.get(home.whole)
            if outer is not None and not outer.nested:
                home = Home(outer.whole, home.axis, outer.start + home.start)
            found[name] = home
        later.append((name, operator))
        _give_parts(found, links, position, name, operator)
    return found


def _range(operator: Concatenate, whole: str, later: Concatenate, links: Links) -> Home | None:
    """Where the parts of a concatenation are neighbours in a later one."""
    if operator.axis != later.axis:
        return None
    start, count = 0, len(operator.parts)
    for first in range(len(later.parts) - count + 1):
        if later.parts[first : first + count] == operator.parts:
            return Home(whole, operator.axis, start)
        start += links.values[later.parts[first].name].shape[operator.axis]
    return None


def _give_parts(
    found: dict[str, Home], links: Links, position: int, name: str, operator: Concatenate
) -> None:
    """Give every part its place, if it is a view of what may be written there."""
    outer = found.get(name)
    if outer is None or outer.nested:
        outer = Home(name, operator.axis, 0)
    start = outer.start
    for part in operator.parts:
        made, views = _made_from(links, part.name)
        maker = links.maker.get(made)
        if maker is not None and _may_lie(links, maker, made, position):
            nested = Concatenate.of(links.nodes[maker]) is not None
            found[made] = Home(outer.whole, operator.axis, start, views, nested)
        start += links.values[part.name].shape[operator.axis]


def _made_from(links: Links, name: str) -> tuple[str, tuple[View, ...]]:
    """Source of a view, and the views."""
    views: list[View] = []
    while (maker := links.maker.get(name)) is not None:
        view = record_of(links.nodes[maker])
        if not isinstance(view, Reshape | Permute):
            break
        views.append(view)
        name = view.x.name
    return name, tuple(reversed(views))


def _may_lie(links: Links, maker: int, name: str, joined: int) -> bool:
    """True if what a node makes can be written where it will be joined."""
    between = sum(not is_view(node) for node in links.nodes[maker:joined])
    near = between <= WRITERS.get(links.nodes[maker].op, -1)
    others = [links.nodes[position] for position in links.readers[name] if position != joined]
    alone = all(_reads_ranges(links, node, name) for node in others)
    return near and name not in links.returned and (alone or links.nodes[maker].op not in ALONE)


def _reads_ranges(links: Links, node: Node, name: str) -> bool:
    """True for a depthwise convolution of the value and its gradient, and for the gradient of a
    norm with this result, which finds out elsewhere where that was clipped."""
    norm, layer = BatchNormBackward.of(node), Convolution.of(node) or ConvolutionBackward.of(node)
    if layer is not None and layer.x.name == name:
        return layer.groups == links.values[name].shape[1]
    return norm is not None and norm.result == Ref(name=name)

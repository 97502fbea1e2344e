"""View sinking: computes functions before the views of what they read, beside the layer that makes
it, which may take them in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from golow.lower.analysis.ranges import View, shape_after
from golow.lower.fuse.weight_folding import scaled_axis
from golow.lower.ir.graph import Graph, Node, Ref
from golow.lower.ir.operator import record_of, written
from golow.lower.ir.rewriting import Links, Names, rewritten
from golow.lower.operators.activation import Activate
from golow.lower.operators.batch_norm import BatchNormInference
from golow.lower.operators.binary import Binary
from golow.lower.operators.linear import Linear
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape

Function = Activate | BatchNormInference


def activate_before_views(graph: Graph) -> Graph:
    """Exchange activations with the views of which they are the only readers."""
    return _moved(graph, lambda node: Activate.of(node), lambda *_: True)


def norm_before_views(graph: Graph) -> Graph:
    """Move inference batch norm before the views that it follows, if the channels stay the second
    axis and the views only divide and order the others."""
    return _moved(graph, lambda node: BatchNormInference.of(node), _keeps_channels)


def scale_and_add_before_views(graph: Graph) -> Graph:
    """Exchange products with a vector, or sums with a value of the same shape, with the permutation
    of what a layer made, as a block of ConvNeXt ends: the layer may take them in."""
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        found = _after_permutation(links, node)
        if found is not None:
            place, function, view = found
            new = _exchanged(links, names, node, function, links.nodes[place], view)
            if new:
                replaced[place], replaced[position] = (), tuple(new)
    return rewritten(graph, replaced) if replaced else graph


def _after_permutation(links: Links, node: Node) -> tuple[int, Binary, Permute] | None:
    """Where a permutation is that this function alone reads, with the function, whose first operand
    it is, and the permutation."""
    function = Binary.of(node)
    if function is None or function.function not in ("add", "multiply") or function.activation:
        return None
    if function.a == function.b:
        return None
    for one, other in ((function.a, function.b), (function.b, function.a)):
        maker = links.maker.get(one.name) if isinstance(one, Ref) else None
        view = None if maker is None else Permute.of(links.nodes[maker])
        if view is None or maker is None or not isinstance(one, Ref) or not isinstance(other, Ref):
            continue
        made = links.maker.get(view.x.name)
        layer = None if made is None else record_of(links.nodes[made])
        alone = links.only_reader(one.name) is not None
        if isinstance(layer, Linear) and alone and links.only_reader(view.x.name) is not None:
            return maker, msgspec.structs.replace(function, a=one, b=other), view
    return None


def _exchanged(
    links: Links, names: Names, node: Node, function: Binary, permuting: Node, view: Permute
) -> list[Node]:
    """The function before the permutation; nothing if its second operand has no place there."""
    output = node.outputs[0]
    assert output is not None and isinstance(function.b, Ref)  # noqa: S101 - a function of two
    other, before = links.values[function.b.name], links.values[view.x.name]
    if output.shape != links.values[function.a.name].shape:
        return []
    moved: View
    if function.function == "multiply":
        axis = scaled_axis(other.shape, output.shape)
        if axis is None:
            return []
        shape = [1] * len(before.shape)
        shape[view.order[axis]] = output.shape[axis]
        moved = Reshape(x=function.b, shape=tuple(shape))
    elif other.shape == output.shape:
        back = tuple(view.order.index(axis) for axis in range(len(view.order)))
        moved, shape = Permute(x=function.b, order=back), list(before.shape)
    else:
        return []
    seen = msgspec.structs.replace(
        other, name=names.free(f"{node.name}.operand"), shape=tuple(shape)
    )
    made = msgspec.structs.replace(before, name=names.free(f"{node.name}.before"))
    exchanged = msgspec.structs.replace(function, a=view.x, b=Ref(name=seen.name))
    after = msgspec.structs.replace(view, x=Ref(name=made.name))
    return [
        written(permuting, moved, name=seen.name, outputs=(seen,)),
        written(node, exchanged, name=made.name, outputs=(made,)),
        written(permuting, after, name=node.name, outputs=(output,)),
    ]


def _moved(
    graph: Graph,
    function_of: Callable[[Node], Function | None],
    fits: Callable[[tuple[int, ...], Sequence[View]], bool],
) -> Graph:
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        function = function_of(node)
        if function is None:
            continue
        made, positions = _made_from(links, function.x.name)
        views = [_view(links.nodes[place]) for place in positions]
        before = links.values[made]
        if not positions or not fits(before.shape, [view for view in views if view is not None]):
            continue
        value = msgspec.structs.replace(before, name=names.free(f"{node.name}.before"))
        operator = msgspec.structs.replace(function, x=Ref(name=made))
        new = [written(node, operator, name=value.name, outputs=(value,))]
        for place, view in zip(positions, views, strict=True):
            replaced[place] = ()
            if view is not None:
                shape = shape_after(view, value.shape)
                value, last = (
                    msgspec.structs.replace(
                        value, name=names.free(f"{node.name}.seen"), shape=shape
                    ),
                    Ref(name=value.name),
                )
                seen = msgspec.structs.replace(view, x=last)
                new.append(written(links.nodes[place], seen, name=value.name, outputs=(value,)))
        new[-1] = msgspec.structs.replace(new[-1], outputs=node.outputs)
        replaced[position] = tuple(new)
    return rewritten(graph, replaced) if replaced else graph


def _made_from(links: Links, name: str) -> tuple[str, list[int]]:
    """Source of a view, and the positions of the views, the first one first. Each is read
    by the next alone."""
    positions: list[int] = []
    while len(links.readers[name]) == 1 and name not in links.returned:
        maker = links.maker.get(name)
        view = None if maker is None else _view(links.nodes[maker])
        if maker is None or view is None:
            break
        positions.insert(0, maker)
        name = view.x.name
    return name, positions


def _view(node: Node) -> View | None:
    view = record_of(node)
    return view if isinstance(view, Reshape | Permute) else None


def _keeps_channels(shape: tuple[int, ...], views: Sequence[View]) -> bool:
    """True if the second axis of the first shape is that of the last: where it is followed through
    reshapes, no axis is joined with it."""
    if len(shape) < 2:
        return False
    axis = 1
    for view in views:
        after = shape_after(view, shape)
        if isinstance(view, Permute):
            axis = view.order.index(axis)
        else:
            found = _same_axis(shape, after, axis)
            if found is None:
                return False
            axis = found
        shape = after
    return axis == 1


def _same_axis(before: tuple[int, ...], after: tuple[int, ...], axis: int) -> int | None:
    """Where an axis is after a reshape that leaves it alone."""
    outer = math.prod(before[:axis])
    for place, size in enumerate(after):
        if size == before[axis] and math.prod(after[:place]) == outer:
            return place
    return None

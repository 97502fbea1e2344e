"""RMS norm fusion: recognises RMS norm in its arithmetic, for a level that has a kernel for it."""

from __future__ import annotations

import math
from typing import NamedTuple

from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Kind, written
from golow.lower.ir.rewriting import Links, absorbing, result, rewritten
from golow.lower.operators.binary import Binary
from golow.lower.operators.expand import Expand
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.rms_norm import RmsNorm, RmsNormBackward

Shape = tuple[int, ...]


def name_rms_norm(graph: Graph) -> Graph:
    """Make x * rsqrt(mean(x^2) + epsilon) * weight one operator, with the addition that makes x,
    and its gradient another one, with what is added to it. As in `nn.RMSNorm` and in networks that
    write it themselves. A part that has readers elsewhere stays as it is."""
    links = _Reading(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        function = Pointwise.of(node)
        if function is not None and function.function == "reciprocal_square_root":
            norm = _norm(links, position)
            if norm is not None:
                replaced |= _replaced(links, norm)
    return rewritten(graph, replaced)


class _Reading(Links):
    """Links, with questions about operators."""

    def position(self, value: object) -> int | None:
        """Position of the node that makes the value; None for a number or an input."""
        return self.maker.get(value.name) if isinstance(value, Ref) else None

    def of(self, value: object, kind: type[Kind]) -> Kind | None:
        """The arguments of the node that makes the value, if it is this operator."""
        position = self.position(value)
        return None if position is None else kind.of(self.nodes[position])

    def after(self, position: int, kind: type[Kind]) -> tuple[int, Kind] | None:
        """Position and arguments of the only node that reads the node's result."""
        reader = self.only_reader(result(self.nodes[position]))
        record = None if reader is None else kind.of(self.nodes[reader])
        return None if reader is None or record is None else (reader, record)

    def factor(self, position: int, of: Ref) -> Ref | None:
        """Factor by which the node multiplies this value; None if it does something else."""
        record = Binary.of(self.nodes[position])
        if record is None or record.function != "multiply" or record.activation is not None:
            return None
        other = record.b if record.a == of else record.a
        return other if isinstance(other, Ref) and of in (record.a, record.b) else None

    def is_power(self, value: object, of: Ref, exponent: float) -> bool:
        """True if the value is that power of another one."""
        power = self.of(value, Pointwise)
        if power is not None:
            return power.function == "power" and power.operands == (of, exponent)
        product = self.of(value, Binary)
        return exponent == 2 and product == Binary(function="multiply", a=of, b=of)

    def shape(self, value: Ref) -> Shape:
        return self.values[value.name].shape

    def is_read_once(self, position: int) -> bool:
        """True if one node reads the node's first result, and nothing else does."""
        return self.only_reader(result(self.nodes[position])) is not None

    def value(self, position: int) -> Value:
        """The first result of a node."""
        return self.values[result(self.nodes[position])]


class _Norm(NamedTuple):
    """Nodes of a norm without its weight. nodes: positions of all of them, which nothing else
    reads but for the reciprocal root and the normalised value, the last two."""

    x: Ref
    axes: int
    epsilon: float
    nodes: tuple[int, ...]

    @property
    def root(self) -> int:
        return self.nodes[-2]

    @property
    def normed(self) -> int:
        return self.nodes[-1]


class _Weighing(NamedTuple):
    """The product with a weight."""

    weight: Ref
    position: int


class _Gradient(NamedTuple):
    """A gradient of a norm: what it reads, a node of its layer, and the node that ends it. added:
    what that node adds. of_weight: the nodes of the weight's gradient, the last one makes it."""

    gradient: Ref
    weight: Ref | None
    beside: int
    last: int
    added: Ref | None
    of_weight: tuple[int, ...] = ()


# ---------------------------------------------------------------- forward


def _norm(links: _Reading, root: int) -> _Norm | None:
    """The norm whose reciprocal root is this node."""
    shifted = Pointwise.of(links.nodes[root]).operands[0]  # type: ignore[union-attr]
    plus = links.of(shifted, Binary)
    mean = None if plus is None else links.of(plus.a, Reduce)
    if plus is None or mean is None or mean.function != "mean" or not mean.keep:
        return None
    if plus.function != "add" or isinstance(plus.b, Ref) or plus.activation is not None:
        return None
    inside = [links.position(item) for item in (mean.x, plus.a, shifted)]
    if any(position is None or not links.is_read_once(position) for position in inside):
        return None
    deviation = Ref(name=result(links.nodes[root]))
    for reader in links.readers[deviation.name]:
        x = links.factor(reader, deviation)
        if x is None or not links.is_power(mean.x, x, 2) or links.nodes[reader].phase != "forward":
            continue
        count = len(links.shape(x))
        if mean.axes and mean.axes == tuple(range(mean.axes[0], count)):
            nodes = (*(position for position in inside if position is not None), root, reader)
            return _Norm(x, count - mean.axes[0], float(plus.b), nodes)
    return None


def _weighing(links: _Reading, norm: _Norm) -> _Weighing | None:
    """The only node of the forward pass that reads the normalised value, if it weighs it."""
    value = links.value(norm.normed)
    readers = [p for p in links.readers[value.name] if links.nodes[p].phase == "forward"]
    if len(readers) != 1 or value.name in links.returned:
        return None
    weight = links.factor(readers[0], Ref(name=value.name))
    if weight is None or links.shape(weight) != value.shape[len(value.shape) - norm.axes :]:
        return None
    return _Weighing(weight, readers[0])


def _replaced(links: _Reading, norm: _Norm) -> dict[int, tuple[Node, ...]]:
    weighing, gradient = _weighing(links, norm), _gradient(links, norm)
    if weighing is not None:
        gradient = _of_weighed(links, norm, weighing, gradient)
        read = {p for p in links.readers[links.value(norm.normed).name] if p != weighing.position}
        if read - set(() if gradient is None else gradient.of_weight):
            # The normalised value stays, so its product with the weight is a separate node.
            weighing, gradient = None, _gradient(links, norm)
    last = norm.normed if weighing is None else weighing.position
    root, base = links.value(norm.root), links.nodes[norm.normed]
    others = [p for p in links.readers[root.name] if p != norm.normed]
    if any(position <= last for position in others):
        return {}
    total = _sum(links, norm, last)
    operator = RmsNorm(
        x=norm.x if total is None else total[1],
        residual=None if total is None else total[2],
        weight=None if weighing is None else weighing.weight,
        axes=norm.axes,
        epsilon=norm.epsilon,
    )
    outputs = (
        links.value(last),
        root if others or root.name in links.returned else None,
        None if total is None else links.value(total[0]),
    )
    gone = {*norm.nodes, last, *(() if total is None else (total[0],))}
    absorbed = absorbing(base, *(links.nodes[position] for position in sorted(gone)))
    replaced: dict[int, tuple[Node, ...]] = dict.fromkeys(gone, ())
    replaced[last] = (written(base, operator, outputs=outputs, absorbed=absorbed),)
    return replaced if gradient is None else replaced | _backward(links, norm, gradient)


def _sum(links: _Reading, norm: _Norm, last: int) -> tuple[int, Ref, Ref] | None:
    """Position and operands of the addition that makes x, if all who read x come later."""
    add = links.of(norm.x, Binary)
    if add is None or add.function != "add" or add.activation or not isinstance(add.b, Ref):
        return None
    inside = {norm.nodes[0], norm.normed}
    if any(p <= last for p in links.readers[norm.x.name] if p not in inside):
        return None
    same = links.shape(add.a) == links.shape(add.b)
    return (links.maker[norm.x.name], add.a, add.b) if same else None


# ---------------------------------------------------------------- backward


def _gradient(links: _Reading, norm: _Norm) -> _Gradient | None:
    """The gradient of the normalised value, c, as autograd writes it: c d and, further on,
    2 x (-1/2 sum(c x) d^3) / n, and what is added to them."""
    deviation = Ref(name=links.value(norm.root).name)
    others = [p for p in links.readers[deviation.name] if p != norm.normed]
    products = [p for p in others if links.factor(p, deviation) is not None]
    cubes = [p for p in others if links.is_power(Ref(name=links.value(p).name), deviation, 3)]
    if len(others) != 2 or len(products) != 1 or len(cubes) != 1:
        return None
    c = links.factor(products[0], deviation)
    share = _share_of_mean(links, norm, cubes[0], c)
    if c is None or share is None or links.shape(c) != links.shape(norm.x):
        return None
    ends = _added_up(links, products[0], share)
    return None if ends is None else _Gradient(c, None, products[0], *ends)


def _share_of_mean(links: _Reading, norm: _Norm, cube: int, c: Ref | None) -> int | None:
    """The node that makes what x gets from the mean, beginning at the cube of the root."""
    times = links.after(cube, Binary)
    spread = None if times is None else links.after(times[0], Expand)
    share = None if spread is None else links.after(spread[0], Binary)
    doubled = None if share is None else links.after(share[0], Binary)
    if times is None or share is None or doubled is None or c is None:
        return None
    half = links.factor(times[0], Ref(name=links.value(cube).name))
    halved = links.of(half, Binary)
    total = None if halved is None else links.of(halved.a, Reduce)
    twice = links.factor(doubled[0], Ref(name=links.value(share[0]).name))
    two = links.of(twice, Binary)
    shape = links.shape(norm.x)
    count = math.prod(shape[len(shape) - norm.axes :])
    if halved is None or total is None or two is None or not isinstance(total.x, Ref):
        return None
    is_it = (
        (halved.function, halved.b) == ("multiply", -0.5)
        and (total.function, total.keep) == ("sum", True)
        and total.axes == tuple(range(len(shape) - norm.axes, len(shape)))
        and links.factor(links.maker.get(total.x.name, cube), norm.x) == c
        and (share[1].function, share[1].b) == ("divide", count)
        and (two.function, two.b) == ("multiply", 2)
        and (two.a == norm.x or links.is_power(two.a, norm.x, 1))
    )
    return doubled[0] if is_it else None


def _added_up(links: _Reading, one: int, other: int) -> tuple[int, Ref | None] | None:
    """The node that ends the sum of two nodes' results, and what else is in the sum."""
    first, second = links.after(one, Binary), links.after(other, Binary)
    if first is None or second is None or not (_adds(first[1]) and _adds(second[1])):
        return None
    if first[0] == second[0]:
        return first[0], None
    for node, inner, last in ((one, first, second), (other, second, first)):
        value = Ref(name=links.value(node).name)
        added = inner[1].b if inner[1].a == value else inner[1].a
        ends = links.only_reader(links.value(inner[0]).name) == last[0]
        if ends and isinstance(added, Ref) and links.shape(added) == links.shape(value):
            return last[0], added
    return None


def _adds(record: Binary) -> bool:
    return record.function == "add" and record.activation is None


def _of_weighed(
    links: _Reading, norm: _Norm, weighing: _Weighing, gradient: _Gradient | None
) -> _Gradient | None:
    """The gradient of the weighed value, with that of the weight if there is one."""
    if gradient is None:
        return None
    made = links.maker.get(gradient.gradient.name)
    outer = None if made is None else links.factor(made, weighing.weight)
    if outer is None or links.shape(outer) != links.shape(norm.x):
        return gradient
    gradient = gradient._replace(gradient=outer, weight=weighing.weight)
    normed = Ref(name=links.value(norm.normed).name)
    for reader in links.readers[normed.name]:
        if links.nodes[reader].phase != "forward" and links.factor(reader, normed) == outer:
            found = _weight_gradient(links, norm, reader, links.shape(weighing.weight))
            if found and all(p > gradient.last for p in links.readers[links.value(found[-1]).name]):
                return gradient._replace(of_weight=found)
    return gradient


def _weight_gradient(
    links: _Reading, norm: _Norm, product: int, shape: Shape
) -> tuple[int, ...] | None:
    """The nodes that sum a product over all but the normalised axes, with the shape of the weight
    in the end."""
    total = links.after(product, Reduce)
    outer = tuple(range(len(links.shape(norm.x)) - norm.axes))
    if total is None or total[1].function != "sum" or total[1].axes != outer:
        return None
    if links.value(total[0]).shape == shape:
        return product, total[0]
    view = links.after(total[0], Reshape)
    return (product, total[0], view[0]) if view is not None and view[1].shape == shape else None


def _backward(links: _Reading, norm: _Norm, gradient: _Gradient) -> dict[int, tuple[Node, ...]]:
    operator = RmsNormBackward(
        gradient=gradient.gradient,
        x=norm.x,
        deviation=Ref(name=links.value(norm.root).name),
        weight=gradient.weight,
        added=gradient.added,
        axes=norm.axes,
    )
    base = links.nodes[gradient.beside]
    absorbed = absorbing(base, links.nodes[gradient.last])
    of_weight = links.value(gradient.of_weight[-1]) if gradient.of_weight else None
    outputs = (links.value(gradient.last), of_weight)
    replaced: dict[int, tuple[Node, ...]] = dict.fromkeys(gradient.of_weight, ())
    replaced[gradient.last] = (written(base, operator, outputs=outputs, absorbed=absorbed),)
    return replaced

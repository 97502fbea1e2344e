"""Products of batches of matrices, of which the second ones are repeated along some axes of the
batch, as where heads share what they are multiplied by (LambdaNetworks, Bello 2021,
arXiv:2102.08602)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.rewriting import Links, Names, rewritten
from golow.lower.operators.expand import Expand
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape

Shape = tuple[int, ...]


class _Repeated(NamedTuple):
    """A batch of matrices before it is repeated, and the axes of the batch [..., K, N] after that:
    those that are kept, and those along which it is repeated."""

    matrices: Ref
    batch: Shape
    kept: Shape
    repeated: Shape

    @property
    def order(self) -> Shape:
        """The axes with those first that are kept."""
        return (*self.kept, *self.repeated, len(self.batch), len(self.batch) + 1)


def multiply_repeated_once(graph: Graph) -> Graph:
    """Let the matrices that are multiplied by the same one be rows of one matrix, so that none is
    copied for each of them."""
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        product = MatrixProduct.of(node)
        found = _repeated(links, product) if product is not None else None
        if product is not None and found is not None:
            replaced[position] = _Writer(links, names, node).once(product, found)
    return rewritten(graph, replaced)


def _repeated(links: Links, product: MatrixProduct) -> _Repeated | None:
    if product.added is not None or len(links.values[product.b.name].shape) != 3:
        return None
    maker = links.made_by(product.b, Reshape.op())
    view = Reshape.of(links.nodes[maker]) if maker is not None else None
    maker = None if view is None else links.made_by(view.x, Expand.op())
    expand = Expand.of(links.nodes[maker]) if maker is not None else None
    if expand is None:
        return None
    before, (*batch, k, n) = links.values[expand.x.name].shape, expand.shape
    if len(before) != len(expand.shape) or links.values[product.b.name].shape[1:] != (k, n):
        return None
    repeated = tuple(axis for axis, size in enumerate(batch) if before[axis] != size)
    kept = tuple(axis for axis in range(len(batch)) if axis not in repeated)
    if not repeated or before[-2:] != (k, n):
        return None
    found = _Repeated(expand.x, tuple(batch), kept, repeated)
    rows = links.values[product.a.name].shape[1]
    # Rows that are in another order may have to be copied, and so may the result.
    in_order = found.order == tuple(range(len(expand.shape)))
    return found if in_order or k * n >= rows * (k + n) else None


class _Writer:
    """Writes the nodes in place of a product."""

    def __init__(self, links: Links, names: Names, node: Node) -> None:
        self._links, self._names, self._node = links, names, node
        self._made: list[Node] = []

    def once(self, product: MatrixProduct, found: _Repeated) -> tuple[Node, ...]:
        """The product of as many matrices as there are different ones, between views."""
        (value,) = self._node.outputs
        assert value is not None  # noqa: S101 - dead code is gone
        (_, rows, k), n = self._links.values[product.a.name].shape, value.shape[-1]
        kept, repeated = ([found.batch[i] for i in axes] for axes in (found.kept, found.repeated))
        count, more = math.prod(kept), math.prod(repeated)
        a = self._add(Reshape(x=product.a, shape=(*found.batch, rows, k)), (*found.batch, rows, k))
        a = self._add(Permute(x=a, order=found.order), (*kept, *repeated, rows, k))
        a = self._add(Reshape(x=a, shape=(count, more * rows, k)), (count, more * rows, k))
        b = self._add(Reshape(x=found.matrices, shape=(count, k, n)), (count, k, n))
        one = msgspec.structs.replace(product, a=a, b=b)
        y = self._add(one, (count, more * rows, n))
        shape = (*kept, *repeated, rows, n)
        y = self._add(Reshape(x=y, shape=shape), shape)
        back = tuple(found.order.index(axis) for axis in range(len(shape)))
        y = self._add(Permute(x=y, order=back), (*found.batch, rows, n))
        last = written(self._node, Reshape(x=y, shape=value.shape), absorbed=())
        return (*self._made, last)

    def _add(self, operator: Operator, shape: Sequence[int]) -> Ref:
        (value,) = self._node.outputs
        assert value is not None  # noqa: S101 - as in once
        made = Value(
            name=self._names.free(f"{value.name}_once"), shape=tuple(shape), dtype=value.dtype
        )
        own = self._node if isinstance(operator, MatrixProduct) else _view_of(self._node)
        self._made.append(written(own, operator, name=made.name, outputs=(made,)))
        return Ref(name=made.name)


def _view_of(node: Node) -> Node:
    return msgspec.structs.replace(node, absorbed=())

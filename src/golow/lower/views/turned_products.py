"""Products with transposed weights, computed the other way round: value weights^T is the transpose
of weights value^T.

Networks of images whose tokens are pixels in PyTorch's order write attention so (SAGAN, Zhang et
al. 2019, arXiv:1805.08318; latent diffusion, Rombach et al. 2022, arXiv:2112.10752; EfficientViT,
Liu et al. 2023, arXiv:2305.07027). The other way round it is attention as kernels compute it, and
its result is stored as an image with its channels innermost, as layers read it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Operator, record_of, written
from golow.lower.ir.rewriting import Links, Names, result, rewritten
from golow.lower.operators.expand import Expand
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.softmax import Softmax

Shape = tuple[int, ...]


def multiply_weights_first(graph: Graph) -> Graph:
    """Multiply the weights that a softmax makes by the values, where a product multiplies values by
    the transposed weights."""
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        product = MatrixProduct.of(node)
        if product is None or product.added is not None:
            continue
        if _are_transposed_weights(links, product.b):
            replaced |= _Writer(links, names, position).turned(product)
    return eliminate_dead_code(rewritten(graph, replaced)) if replaced else graph


def _are_transposed_weights(links: Links, reference: Ref) -> bool:
    """True if one product alone reads these transposed results of a softmax of rows."""
    maker = links.maker.get(reference.name)
    if maker is None or links.only_reader(reference.name) is None:
        return False
    view = record_of(links.nodes[maker])
    if isinstance(view, Permute):
        made = links.made_by(view.x, Softmax.op())
        softmax = None if made is None else Softmax.of(links.nodes[made])
        last = len(view.order) - 1
        alone = links.only_reader(view.x.name) is not None
        return softmax is not None and softmax.axis == last and alone and _transposes(view)
    if isinstance(view, Reshape | Expand) and _keeps_matrices(links, view):
        return _are_transposed_weights(links, view.x)
    return False


class _Writer:
    """Writes the nodes in place of the product at a position."""

    def __init__(self, links: Links, names: Names, position: int) -> None:
        self._links, self._names, self._position = links, names, position
        self._node = links.nodes[position]
        self._made: list[Node] = []

    def turned(self, product: MatrixProduct) -> dict[int, tuple[Node, ...]]:
        """(b^T a^T)^T for a b. It is transposed back after the reshape that follows, if that keeps
        the matrices as they are: attention is recognised with its heads on an axis."""
        before, last = self._links.values[result(self._node)], self._node
        a, b = self._transposed(product.b), self._transposed(product.a)
        y = self._add(msgspec.structs.replace(product, a=a, b=b), _swapped(before.shape))
        reader = self._links.only_reader(before.name)
        view = None if reader is None else Reshape.of(self._links.nodes[reader])
        gone: dict[int, tuple[Node, ...]] = {}
        if reader is not None and view is not None and _keeps_matrices(self._links, view):
            y = self._seen(view, y)
            last, gone = self._links.nodes[reader], {reader: ()}
        (value,) = last.outputs
        assert value is not None  # noqa: S101 - dead code is gone
        back = Permute(x=y, order=_swapped(range(len(value.shape))))
        return {**gone, self._position: (*self._made, written(last, back, absorbed=()))}

    def _transposed(self, reference: Ref) -> Ref:
        """The transposed matrices: what was transposed, or a view."""
        maker = self._links.maker.get(reference.name)
        view = None if maker is None else record_of(self._links.nodes[maker])
        if isinstance(view, Permute) and _transposes(view):
            return view.x
        if isinstance(view, Reshape | Expand) and _keeps_matrices(self._links, view):
            return self._seen(view, self._transposed(view.x))
        shape = self._links.values[reference.name].shape
        order = _swapped(range(len(shape)))
        return self._add(Permute(x=reference, order=order), _swapped(shape))

    def _seen(self, view: Reshape | Expand, x: Ref) -> Ref:
        """The view of transposed matrices."""
        shape = _swapped(view.shape)
        return self._add(msgspec.structs.replace(view, x=x, shape=shape), shape)

    def _add(self, operator: Operator, shape: Shape) -> Ref:
        like = self._links.values[result(self._node)]
        made = Value(name=self._names.free(f"{like.name}_turned"), shape=shape, dtype=like.dtype)
        own = isinstance(operator, MatrixProduct)
        beside = self._node if own else msgspec.structs.replace(self._node, absorbed=())
        self._made.append(written(beside, operator, name=made.name, outputs=(made,)))
        return Ref(name=made.name)


def _keeps_matrices(links: Links, view: Reshape | Expand) -> bool:
    """True if the last two axes stay as they are."""
    before = links.values[view.x.name].shape
    return len(before) > 1 and before[-2:] == view.shape[-2:]


def _transposes(view: Permute) -> bool:
    return view.order == _swapped(range(len(view.order)))


def _swapped(axes: Sequence[int]) -> Shape:
    """The last two in the other order."""
    return (*axes[:-2], axes[-1], axes[-2])

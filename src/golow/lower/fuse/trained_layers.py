"""Linear layers of a training graph, each with the nodes that compute it and its gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from golow.lower.analysis.liveness import same_elements
from golow.lower.ir.graph import Graph, GraphOutput, Ref
from golow.lower.ir.rewriting import Links, result
from golow.lower.operators.binary import Binary
from golow.lower.operators.linear import Linear
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.permute import Permute
from golow.lower.operators.reduce import Reduce

SWAPPED = (1, 0)


class TrainedLayer(NamedTuple):
    """A linear layer whose parameters are trained, and the positions of its nodes.

    x: its operand [N, C]; source: the first value with the same elements. weight: [K, C]; bias:
    None if it has none. gradient: of its result, [N, K]. of_x: None if nothing needs that gradient.
    """

    x: str
    source: str
    weight: str
    bias: str | None
    gradient: str
    forward: int
    of_weight: int
    of_x: int | None
    of_bias: int | None


def trained_layers(graph: Graph) -> list[TrainedLayer]:
    """The layers of which a product of matrices computes every gradient, in the order in which
    those of their weights are computed."""
    finder = _Finder(graph)
    found = [
        finder.layer(item) for item in graph.outputs if item.kind in ("gradient", "gradient_sum")
    ]
    return sorted(filter(None, found), key=lambda layer: layer.of_weight)


class _Finder:
    def __init__(self, graph: Graph) -> None:
        self._links, self._same = Links(graph), same_elements(graph)
        self._parameters = {i.target: i.value for i in graph.inputs if i.kind == "parameter"}
        self._sums = {i.value.name for i in graph.inputs if i.kind == "gradient_sum"}
        self._gradients = {
            self._parameters[item.target].name: self._own(item.name)
            for item in graph.outputs
            if item.kind in ("gradient", "gradient_sum")
        }

    def layer(self, item: GraphOutput) -> TrainedLayer | None:
        """The layer whose weight has this gradient; None for another parameter."""
        weight = self._parameters[item.target]
        of_weight = self._links.maker.get(self._gradients[weight.name])
        outer = self._plain(of_weight)
        forward, backward = self._uses(weight.name)
        if of_weight is None or outer is None or len(forward) != 1 or len(backward) > 1:
            return None
        gradient, turned = self._matrix(outer.a.name)
        own = self._forward(*forward[0])
        if not turned or own is None or self._same(own.x.name) != self._same(outer.b.name):
            return None
        of_x = self._of_x(backward, gradient)
        of_bias = None if own.bias is None else self._of_bias(own.bias.name, gradient)
        if (of_x is None) != (not backward) or (of_bias is None) != (own.bias is None):
            return None
        bias = None if own.bias is None else own.bias.name
        return TrainedLayer(
            own.x.name, self._same(own.x.name), weight.name, bias, gradient, forward[0][0],
            of_weight, of_x, of_bias,
        )  # fmt: skip

    def _own(self, name: str) -> str:
        """The first value with the elements of a gradient, without what earlier steps add to it."""
        first = self._same(name)
        maker = self._links.maker.get(first)
        add = Binary.of(self._links.nodes[maker]) if maker is not None else None
        if add is not None and add.a.name in self._sums and isinstance(add.b, Ref):
            return self._same(add.b.name)
        return first

    def _plain(self, position: int | None) -> MatrixProduct | None:
        """The product of two matrices at this position, if it is that alone."""
        product = None if position is None else MatrixProduct.of(self._links.nodes[position])
        if product is None or product.factor != 1 or product.added is not None:
            return None
        return product if len(self._links.values[product.a.name].shape) == 2 else None

    def _matrix(self, name: str) -> tuple[str, bool]:
        """The matrix of which this one is a view, and whether it is its transpose."""
        turned = False
        while (maker := self._links.maker.get(name)) is not None:
            view = Permute.of(self._links.nodes[maker])
            if view is None or view.order != SWAPPED:
                break
            name, turned = view.x.name, not turned
        return name, turned

    def _uses(self, weight: str) -> tuple[list[tuple[int, bool]], list[tuple[int, bool]]]:
        """The nodes that read a weight, or its transpose, forward and backward."""
        forward: list[tuple[int, bool]] = []
        backward: list[tuple[int, bool]] = []
        for position, turned in self._readers(weight):
            ahead = self._links.nodes[position].phase == "forward"
            (forward if ahead else backward).append((position, turned))
        return forward, backward

    def _readers(self, name: str, turned: bool = False) -> Iterator[tuple[int, bool]]:
        for position in self._links.readers[name]:
            view = Permute.of(self._links.nodes[position])
            if view is not None and view.order == SWAPPED:
                yield from self._readers(result(self._links.nodes[position]), not turned)
            else:
                yield position, turned

    def _forward(self, position: int, turned: bool) -> Linear | None:
        """The layer itself, which without a bias is a product with the transposed weight."""
        layer, product = Linear.of(self._links.nodes[position]), self._plain(position)
        if layer is not None:
            alone = layer.activation is None and layer.residual is None and not turned
            return layer if alone and len(self._links.values[layer.x.name].shape) == 2 else None
        if product is None or not turned:
            return None
        return Linear(x=product.a, weight=product.b)

    def _of_x(self, uses: list[tuple[int, bool]], gradient: str) -> int | None:
        """The product with the weight that gives the gradient of x."""
        for position, turned in uses:
            product = self._plain(position)
            if product is not None and not turned and product.a.name == gradient:
                return position
        return None

    def _of_bias(self, bias: str, gradient: str) -> int | None:
        """The sum that is the bias's gradient, if the layer alone reads the bias."""
        if self._links.only_reader(bias) is None:
            return None
        position = self._links.maker.get(self._gradients.get(bias, ""))
        total = None if position is None else Reduce.of(self._links.nodes[position])
        if total is None or total.function != "sum" or total.axes != (0,):
            return None
        return position if total.x.name == gradient else None

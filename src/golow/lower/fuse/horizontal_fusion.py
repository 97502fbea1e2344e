"""Horizontal fusion: computes linear layers of one input as one: query, key and value of attention,
gate and input of a gated layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from golow.lower.fuse.pointwise_fusion import GROUPED
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import is_view, written
from golow.lower.ir.rewriting import Links, absorbing, once, rewritten
from golow.lower.operators.attention import Attention, AttentionBackward
from golow.lower.operators.cache_update import CacheUpdate
from golow.lower.operators.cached_attention import CachedAttention
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.joined_weight import JoinedWeight, joined_shape
from golow.lower.operators.linear import Linear
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.quantized_linear import QuantizedLinear
from golow.lower.operators.slice import Slice

# Operators that read a slice of a row as it is stored, or copy their operand in any case.
READ = (Attention, AttentionBackward, CachedAttention, CacheUpdate, Concatenate, MatrixProduct)
READ_SLICES = {*GROUPED, *(kind.op() for kind in READ)}
ALIGNED = 8  # outputs of each layer are a multiple of it, so that slices begin at whole vectors


def join_linear_layers(graph: Graph) -> Graph:
    """Make linear layers of the same input one layer and slices of its result, in inference, where
    weights can be joined in advance. Layers whose readers need whole rows, or that have a function
    or an addition within, stay as they are."""
    found = _Layers(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for layers in found.of_one_input():
        replaced |= found.joined(layers)
    return rewritten(graph, replaced)


JOINED = ("weight", "scale", "bias")
"""Fields of layers that are joined. Only quantised layers have a scale."""


class _Layer(NamedTuple):
    """A linear layer: the position of its node, its arguments and its result."""

    position: int
    arguments: Linear | QuantizedLinear
    output: Value

    @property
    def operands(self) -> dict[str, Ref]:
        """Operands that are joined with those of other layers, by their fields."""
        found = {name: getattr(self.arguments, name, None) for name in JOINED}
        return {name: item for name, item in found.items() if item is not None}


class _Layers:
    """The linear layers of a graph that may be joined with others."""

    def __init__(self, graph: Graph) -> None:
        self._nodes, self._links = graph.nodes, Links(graph)
        kept = [item for item in graph.inputs if item.kind in ("parameter", "buffer", "constant")]
        self._weights = {item.value.name for item in kept}

    def of_one_input(self) -> Iterator[list[_Layer]]:
        """Two or more layers each that read the same value and are alike but for their weights."""
        groups: dict[tuple[str, ...], list[_Layer]] = defaultdict(list)
        for position, node in enumerate(self._nodes):
            layer = self._layer(position, node)
            if layer is not None:
                groups[layer.arguments.x.name, layer.output.dtype, *layer.operands].append(layer)
        return (layers for layers in groups.values() if len(layers) > 1)

    def _layer(self, position: int, node: Node) -> _Layer | None:
        arguments = Linear.of(node) or QuantizedLinear.of(node)
        output = node.outputs[0] if node.outputs else None
        if arguments is None or output is None:
            return None
        layer = _Layer(position, arguments, output)
        alone = arguments.activation is None and arguments.residual is None
        known = all(item.name in self._weights for item in layer.operands.values())
        whole = output.shape[-1] % ALIGNED == 0 and reads_slices(self._links, output)
        return layer if alone and known and whole else None

    def joined(self, layers: Sequence[_Layer]) -> dict[int, tuple[Node, ...]]:
        """Nodes that replace those of these layers."""
        first = layers[0]
        node, arguments = self._nodes[first.position], first.arguments
        widths = [layer.output.shape[-1] for layer in layers]
        name = f"{first.output.name}_joined"
        new = [
            together(
                self._links, node, f"{name}_{field}", [layer.operands[field] for layer in layers]
            )
            for field in first.operands
        ]
        fields = {field: Ref(name=f"{name}_{field}") for field in first.operands}
        shape = (*first.output.shape[:-1], sum(widths))
        whole = msgspec.structs.replace(first.output, name=name, shape=shape)
        one = msgspec.structs.replace(arguments, **fields)
        absorbed = absorbing(node, *(self._nodes[layer.position] for layer in layers[1:]))
        new.append(written(node, one, outputs=(whole,), absorbed=absorbed))
        found: dict[int, tuple[Node, ...]] = {}
        start = 0
        for layer, width in zip(layers, widths, strict=True):
            part = Slice(
                x=Ref(name=name), axis=len(shape) - 1, start=start, stop=start + width, step=1
            )
            found[layer.position] = (written(self._nodes[layer.position], part),)
            start += width
        return found | {first.position: (*new, *found[first.position])}


def reads_slices(links: Links, output: Value) -> bool:
    """True if all that read the value, or a view of it, can read a slice of each row."""
    waiting = [output.name]
    while waiting:
        name = waiting.pop()
        if name in links.returned:
            return False
        for reader in links.readers[name]:
            node = links.nodes[reader]
            if is_view(node):
                waiting += [value.name for value in node.outputs if value is not None]
            elif node.op not in READ_SLICES:
                return False
    return True


def together(links: Links, beside: Node, name: str, parts: Sequence[Ref]) -> Node:
    """A new node that joins weights, in the same layer as ``beside``."""
    given = [links.values[part.name] for part in parts]
    shape = joined_shape([value.shape for value in given])
    value = Value(name=name, shape=shape, dtype=given[0].dtype)
    return once(beside, JoinedWeight(parts=tuple(parts)), value)

"""Linear layers of a few rows, as in a step of a language model: the norm before them and the gate
after them become part of the product, whose time is that of reading its weight."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable

import msgspec

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Activation, Graph, Node, Ref, Value
from golow.lower.ir.operator import written
from golow.lower.ir.rewriting import Links, Names, absorbing, result, rewritten
from golow.lower.operators.activation import Activate
from golow.lower.operators.binary import Binary
from golow.lower.operators.cache_update import CacheUpdate
from golow.lower.operators.cached_attention import CachedAttention
from golow.lower.operators.joined_weight import JoinedWeight
from golow.lower.operators.linear import Linear
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.rms_norm import RmsNorm
from golow.lower.operators.row_product import RowProduct
from golow.lower.operators.slice import Slice
from golow.lower.operators.step_attention import StepAttention

MOST_ROWS = 4  # with more, tensor cores read the weight as fast
LEAST_WEIGHT = 1 << 19  # elements: a library's launch of a smaller one takes as long
WITH_CACHES = (CacheUpdate.op(), CachedAttention.op(), StepAttention.op())
STEP, LONGEST = 8, 16384  # the width: whole pieces of 16 bytes, and x fits into registers


def multiply_few_rows(graph: Graph) -> Graph:
    """Make linear layers of a few rows and large weights `RowProduct`s, in steps that generate
    text, with an RMS norm that only such layers read, and with the gate of SwiGLU and its kin.
    Other networks were not measured with it: they keep the library's products."""
    if all(node.op not in WITH_CACHES for node in graph.nodes):
        return graph
    links, names = Links(graph), Names(graph)
    weights = {item.value.name for item in graph.inputs if item.kind in ("parameter", "constant")}
    layers = {
        position: layer
        for position, node in enumerate(graph.nodes)
        if (layer := Linear.of(node)) is not None and _is_large(links, weights, node, layer)
    }
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, layer in layers.items():
        norm, gate = _norm_before(links, layer, layers), _gate_after(links, position, layer)
        product = RowProduct(
            x=layer.x,
            weight=layer.weight,
            norm=None,
            bias=layer.bias,
            residual=layer.residual,
            epsilon=None,
            activation=layer.activation if gate is None else gate[1],
            gated=gate is not None,
        )
        before: tuple[Node, ...] = ()
        if norm is not None:
            product, before = _with_norm(links, names, product, norm)
        end = position if gate is None else gate[0]
        others = [links.nodes[at] for at in (norm, end) if at not in (None, position)]
        absorbed = absorbing(links.nodes[position], *others)
        replaced[position] = ()
        outputs = links.nodes[end].outputs
        made = written(links.nodes[position], product, outputs=outputs, absorbed=absorbed)
        replaced[end] = (*before, made)
    return eliminate_dead_code(rewritten(graph, replaced)) if replaced else graph


def _with_norm(
    links: Links, names: Names, product: RowProduct, at: int
) -> tuple[RowProduct, tuple[Node, ...]]:
    """The product with the norm at a position within, and the view that it then reads through, if
    it read the norm's result through some."""
    norm = RmsNorm.of(links.nodes[at])
    assert norm is not None  # noqa: S101 - as _norm_before states
    x, wanted = norm.x, links.values[product.x.name]
    before: tuple[Node, ...] = ()
    if links.values[x.name].shape != wanted.shape:
        x = Ref(name=names.free(f"{norm.x.name}.rows"))
        view = Reshape(x=norm.x, shape=wanted.shape)
        node = links.nodes[links.maker[product.x.name]]
        value = msgspec.structs.replace(wanted, name=x.name)
        before = (written(node, view, outputs=(value,)),)
    changed = msgspec.structs.replace(product, x=x, norm=norm.weight, epsilon=norm.epsilon)
    return changed, before


def _is_large(links: Links, weights: Container[str], node: Node, layer: Linear) -> bool:
    """weights: values that no step of the graph writes, so that the kernel reads them early."""
    value, weight = links.values[result(node)], links.values[layer.weight.name]
    made = links.made_by(layer.weight, JoinedWeight.op())
    constant = made is not None or layer.weight.name in weights
    few = math.prod(value.shape[:-1]) <= MOST_ROWS
    floating = value.dtype == "float32"
    fits = (
        weight.shape[1] % STEP == 0
        and weight.shape[1] <= LONGEST
        and math.prod(weight.shape) >= LEAST_WEIGHT
    )
    return constant and few and floating and fits


def _norm_before(links: Links, layer: Linear, layers: Iterable[int]) -> int | None:
    """Position of the norm that makes x, if it does nothing else and only such layers read it."""
    found = _seen_through(links, layer.x, layers)
    at = None if found is None else links.made_by(found, RmsNorm.op())
    if at is None or found is None:
        return None
    norm, outputs = RmsNorm.of(links.nodes[at]), links.nodes[at].outputs
    alone = norm is not None and norm.residual is None and norm.axes == 1
    first = outputs[0] is not None and outputs[0].name == found.name
    return at if alone and first and outputs[1:] == (None, None) else None


def _seen_through(links: Links, x: Ref, layers: Iterable[int]) -> Ref | None:
    """The value that only such layers read, directly or through views of the same rows."""
    readers = {*layers}
    while x.name not in links.returned and {*links.readers[x.name]} <= readers:
        at = links.maker.get(x.name)
        view = None if at is None else Slice.of(links.nodes[at]) or Reshape.of(links.nodes[at])
        if at is None or view is None or not _same_rows(links, view.x, x):
            return x
        x, readers = view.x, {at}
    return None


def _same_rows(links: Links, one: Ref, other: Ref) -> bool:
    shapes = [links.values[item.name].shape for item in (one, other)]
    return shapes[0][-1:] == shapes[1][-1:] and math.prod(shapes[0]) == math.prod(shapes[1])


def _gate_after(links: Links, position: int, layer: Linear) -> tuple[int, Activation] | None:
    """The product of both halves of the layer's columns, the first of them through an activation:
    its position, and the activation."""
    value = links.values[result(links.nodes[position])]
    parts = _halves(links, value)
    if parts is None or layer.residual is not None or layer.activation is not None:
        return None
    gate, other = parts
    at = links.only_reader(gate)
    activate = None if at is None else Activate.of(links.nodes[at])
    if at is None or activate is None:
        return None
    active = result(links.nodes[at])
    end = links.only_reader(active)
    product = None if end is None else Binary.of(links.nodes[end])
    if end is None or product is None or links.only_reader(other) != end:
        return None
    plain = product.function == "multiply" and product.activation is None
    both = {product.a, product.b} == {Ref(name=active), Ref(name=other)}
    return (end, activate.activation) if plain and both else None


def _halves(links: Links, value: Value) -> tuple[str, str] | None:
    """Names of the first and the second half of the value's columns, if nothing else reads it."""
    readers, half = links.readers[value.name], value.shape[-1] // 2
    if value.name in links.returned or len(readers) != 2 or value.shape[-1] % 2:
        return None
    found: dict[int, str] = {}
    for reader in readers:
        part = Slice.of(links.nodes[reader])
        if part is None or part.axis != len(value.shape) - 1 or part.step != 1:
            return None
        if part.stop - part.start == half:
            found[part.start] = result(links.nodes[reader])
    return (found[0], found[half]) if set(found) == {0, half} else None

"""From a lowered graph to its plan: what the level implements, whether it can run a graph, and the
build itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType

import msgspec

from golow.levels.direct.formulas.expressions import is_written
from golow.levels.direct.implementation import (
    Implementation,
    implementations,
    refusals,
    require_supported,
)
from golow.levels.direct.onednn import operators
from golow.levels.direct.onednn.bindings.library import Descriptor, Engine
from golow.levels.direct.onednn.build.builder import LEVEL, Builder, Chooser
from golow.levels.direct.onednn.build.inputs import Key
from golow.levels.direct.onednn.steps.built_plan import COMPUTED, Built, Switches
from golow.lower.fuse.norm_functions import fuse_batch_norm_function
from golow.lower.fuse.pointwise_fusion import group_elements
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.operators.activation import Activate, ActivateBackward
from golow.lower.operators.batch_norm import BatchNormInference
from golow.lower.operators.binary import Binary
from golow.lower.operators.fused import Fused
from golow.records.errors import Unsupported

# Elements whose sum or product a primitive needs longer to begin (2.6 us) than a loop to compute.
FEW = 4096


@cache
def implemented() -> dict[str, Implementation]:
    """Return every operator of the level, by its name in nodes."""
    return implementations(operators)


def refused_nodes(graph: Graph) -> Iterator[Unsupported]:
    """Yield every node that the level cannot run, as far as this is known without library."""
    return refusals(LEVEL, graph, implemented(), COMPUTED)


def require_runnable(graph: Graph) -> None:
    """Raise `Unsupported` for the first node that the level cannot run, as far as this is known
    without the library."""
    require_supported(LEVEL, graph, implemented(), COMPUTED)


def build_plan(
    graph: Graph,
    engine: Engine,
    layout_of: Chooser,
    switches: Switches,
    generates: bool = False,
    state: Mapping[Key, Descriptor] = MappingProxyType({}),
) -> Built:
    """Return the plan in these layouts. generates: whether kernels can be compiled here. state:
    layouts of what training changes, where another plan has it already. Raises `Unsupported`, also
    if oneDNN refuses a shape."""
    require_runnable(graph)
    builder = Builder(arranged(graph, generates), engine, layout_of, switches, generates, state)
    return builder.build(implemented())


def arranged(graph: Graph, generates: bool) -> Graph:
    """Return the graph as its plan follows it: activations in batch norms, and functions of
    elements in groups, where kernels can be compiled for them. What stands alone and has a
    primitive stays as it is."""
    if not generates:
        return graph
    graph = fuse_batch_norm_function(graph)
    values = graph.values()
    makers = {v.name: node for node in graph.nodes for v in node.outputs if v is not None}

    def kept(node: Node) -> Node:
        group = Fused.of(node)
        if group is None or len(group.program) > 1:
            return node
        alone = makers[group.yields[0]]
        few = alone.op == Binary.op() and math.prod(values[group.yields[0]].shape) <= FEW
        return alone if _has_primitive(alone, values) and not few else node

    grouped = group_elements(graph, lambda node: is_written(node, values))
    return msgspec.structs.replace(grouped, nodes=tuple(map(kept, grouped.nodes)))


def _has_primitive(node: Node, values: Mapping[str, Value]) -> bool:
    """True if the library computes the function of elements with more than its reference code,
    which is what it has for a value that repeats along an axis."""
    if node.op in (Activate.op(), ActivateBackward.op(), BatchNormInference.op()):
        return True
    binary = Binary.of(node)
    if binary is None:
        return False
    b = binary.b
    return not isinstance(b, Ref) or values[binary.a.name].shape == values[b.name].shape

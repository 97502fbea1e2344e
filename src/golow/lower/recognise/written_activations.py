"""Activations that a network writes out, such as GPT-2's GELU of a product, a cube and a tanh: made
one operator in inference, which layers absorb.

There are many ways to write one. So a chain of functions of one value is compared with the named
activations by its numbers: both are evaluated in float64 at many points, and are the same if they
agree to a billionth, far below float32's rounding. Chains consist of a few elementary functions,
and two of those that agree at all these points are the same function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Activation, Graph, Node, Ref
from golow.lower.ir.operator import activation_functions, written
from golow.lower.ir.rewriting import Links, absorbing, result, rewritten
from golow.lower.operators.activation import Activate
from golow.lower.operators.binary import Binary
from golow.lower.operators.pointwise import Pointwise

if TYPE_CHECKING:
    from torch import Tensor

NAMES = ("gelu_tanh", "gelu", "silu", "hardswish")
MOST = 12  # functions of a chain
POINTS, FARTHEST, AGREEMENT = 2001, 12.0, 1e-9


def name_written_activations(graph: Graph) -> Graph:
    """Replace each product that ends such a chain with its activation."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        function = Binary.of(node)
        if function is None or function.function != "multiply" or function.activation is not None:
            continue
        found = _found(links, position)
        if found is not None:
            x, name, chain = found
            absorbed = absorbing(node, *(links.nodes[place] for place in chain))
            operator = Activate(x=Ref(name=x), activation=Activation(name=name))
            replaced[position] = (written(node, operator, absorbed=absorbed),)
    return eliminate_dead_code(rewritten(graph, replaced)) if replaced else graph


def _found(links: Links, last: int) -> tuple[str, str, list[int]] | None:
    """The argument of the chain that ends there, its function's name, and its nodes."""
    chain = _before(links, last)
    read = [name for place in chain for name in links.nodes[place].references()]
    # The argument is read several times, unless its square is its product with itself.
    value = links.values[result(links.nodes[last])]
    for x in dict.fromkeys(name for name in read if read.count(name) > 1):
        given = links.values[x]
        if (given.shape, given.dtype) != (value.shape, "float32"):
            continue
        between = _between(links, last, x)
        if between is not None and 1 < len(between) <= MOST and _is_closed(links, between):
            name = _name(links, between, x)
            if name is not None:
                return x, name, between
    return None


def _before(links: Links, last: int) -> list[int]:
    """The functions of elements that the node's value depends on, as far as a chain is long."""
    found, waiting = [last], [last]
    shape = links.values[result(links.nodes[last])].shape
    while waiting and len(found) <= MOST:
        for name in links.nodes[waiting.pop(0)].references():
            maker = links.maker.get(name)
            if maker is not None and maker not in found and _is_function(links, maker, shape):
                found.append(maker)
                waiting.append(maker)
    return found


def _between(links: Links, last: int, x: str) -> list[int] | None:
    """The nodes from the argument to the last one, in order; None if they read anything else."""
    found, waiting = {last}, [last]
    shape = links.values[result(links.nodes[last])].shape
    while waiting:
        for name in links.nodes[waiting.pop()].references():
            maker = links.maker.get(name)
            if name == x or maker in found:
                continue
            if maker is None or len(found) > MOST or not _is_function(links, maker, shape):
                return None
            found.add(maker)
            waiting.append(maker)
    return sorted(found)


def _is_closed(links: Links, chain: list[int]) -> bool:
    """True if nothing else reads what is within the chain."""
    within = [result(links.nodes[position]) for position in chain[:-1]]
    readers = {reader for name in within for reader in links.readers[name]}
    return readers <= set(chain) and links.returned.isdisjoint(within)


def _is_function(links: Links, position: int, shape: tuple[int, ...]) -> bool:
    node = links.nodes[position]
    value = links.values.get(result(node))
    kinds = (Binary, Pointwise, Activate)
    alike = value is not None and value.shape == shape and value.dtype == "float32"
    return alike and any(kind.of(node) is not None for kind in kinds)


def _name(links: Links, chain: list[int], x: str) -> str | None:
    """The activation that the chain computes."""
    import torch

    from golow.lower.ir.verify import run_node

    values: dict[str, Tensor] = {x: torch.linspace(-FARTHEST, FARTHEST, POINTS).double()}
    for position in chain:
        node = _in_double(links.nodes[position])
        values[result(node)] = run_node(node, values)[0]
    found = values[result(links.nodes[chain[-1]])]
    for name, function in _named().items():
        if bool(((found - function(values[x])).abs() <= AGREEMENT).all()):
            return name
    return None


def _in_double(node: Node) -> Node:
    """The node, computing in float64."""
    function = Pointwise.of(node)
    if function is None:
        return node
    return written(node, msgspec.structs.replace(function, dtype="float64"))


@cache
def _named() -> dict[str, Callable[..., Tensor]]:
    return {name: activation_functions()[name].forward for name in NAMES}

"""Partition of a training step into forward and backward."""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from torch import fx
from torch._functorch.partitioners import default_partition

ATEN = torch.ops.aten
POOLS: dict[Any, Any] = {
    ATEN.max_pool2d_with_indices_backward.default: ATEN.max_pool2d_with_indices.default,
    ATEN.max_pool3d_with_indices_backward.default: ATEN.max_pool3d_with_indices.default,
}
"""Operation that recomputes the positions, by the gradient that reads them."""
INDICES = 7  # the argument of the gradient


def with_pools_recomputed(
    joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **further: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Partition as AOTAutograd does, but recompute the positions of maxima in the backward pass:
    oneDNN stores them in a private form, which cannot be an output of a graph."""
    forward, backward = default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **further)
    results: Any = forward.graph.output_node().args[0]
    asked = {item.name for item in results[:num_fwd_outputs] if isinstance(item, fx.Node)}
    saved = {item.name for item in results[num_fwd_outputs:] if isinstance(item, fx.Node)}
    dropped = set()
    for node in backward.graph.find_nodes(op="placeholder"):
        if node.name in saved - asked and _is_recomputed(node):
            dropped.add(node.name)
    _without_saved(forward, num_fwd_outputs, dropped)
    backward.recompile()
    return forward, backward


def _is_recomputed(indices: fx.Node) -> bool:
    """Let each gradient that reads a placeholder compute the indices itself; False if anything else
    reads them."""
    readers = list(indices.users)
    if not readers or any(
        reader.target not in POOLS or reader.args[INDICES] is not indices for reader in readers
    ):
        return False
    graph = indices.graph
    for reader in readers:
        given: Any = reader.args[1:INDICES]
        x, *window = given
        with graph.inserting_before(reader):
            target = POOLS[reader.target]
            pool = graph.call_function(target, (x, *window))
            again = graph.call_function(getitem, (pool, 1))
        pool.meta["val"] = target(x.meta["val"], *window)
        again.meta["val"] = pool.meta["val"][1]
        reader.update_arg(INDICES, again)
    graph.erase_node(indices)
    return True


def _without_saved(forward: fx.GraphModule, kept: int, names: set[str]) -> None:
    """Remove values from those that forward saves."""
    if not names:
        return
    end = forward.graph.output_node()
    results: Any = end.args[0]
    places = [
        k for k, item in enumerate(results)
        if k < kept or not isinstance(item, fx.Node) or item.name not in names
    ]  # fmt: skip
    end.args = (type(results)(results[k] for k in places),)
    if "desc" in end.meta:
        end.meta["desc"] = [end.meta["desc"][k] for k in places]
    forward.graph.eliminate_dead_code()
    forward.recompile()

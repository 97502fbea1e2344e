"""Regions of a captured graph that stand in modules of their own, taken back into the graph."""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from torch import fx


def inline_regions(traced: fx.GraphModule) -> None:
    """Put the nodes of every ``no_grad`` region where the region is called. torch.export makes
    such regions modules of their own; without a backward pass they mean nothing."""
    wrapped = torch.ops.higher_order.wrap_with_set_grad_enabled
    for node in traced.graph.find_nodes(op="call_function", target=wrapped):
        _, region, *arguments = node.args
        inner: Any = traced.get_submodule(str(region.target))
        inline_regions(inner)
        _inline(node, inner, arguments)
        if not region.users:
            traced.graph.erase_node(region)
    traced.recompile()


def _inline(node: fx.Node, inner: fx.GraphModule, arguments: list[Any]) -> None:
    placeholders = inner.graph.find_nodes(op="placeholder")
    known = dict(zip(placeholders, arguments, strict=True))
    with node.graph.inserting_before(node):
        results: Any = node.graph.graph_copy(inner.graph, known)
    for user in list(node.users):
        if user.target is not getitem:
            raise RuntimeError(f"{user} reads a region as a whole")
        user.replace_all_uses_with(results[user.args[1]])
        node.graph.erase_node(user)
    node.graph.erase_node(node)

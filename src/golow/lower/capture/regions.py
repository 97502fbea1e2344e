"""Regions of a captured graph that stand in separate modules, taken back into the graph."""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from torch import fx

from golow.records.errors import GolowError

_AUTOCAST = torch.ops.higher_order.wrap_with_autocast
_ARGUMENTS_BEFORE_REGION = {torch.ops.higher_order.wrap_with_set_grad_enabled: 1, _AUTOCAST: 4}


def inline_regions(traced: fx.GraphModule) -> None:
    """Put the nodes of every ``no_grad`` region, and of every one that turns autocast off, where
    the region is called. torch.export makes such regions separate modules; without a backward
    pass the first mean nothing, and golow captures a model without autocast.

    Raises:
        GolowError: a region turns autocast on.
    """
    for node in [n for n in traced.graph.nodes if n.target in _ARGUMENTS_BEFORE_REGION]:
        before = _ARGUMENTS_BEFORE_REGION[node.target]
        settings, region, arguments = node.args[:before], node.args[before], node.args[before + 1 :]
        if node.target is _AUTOCAST:
            _refuse_autocast(*settings)
        inner: Any = traced.get_submodule(str(region.target))
        inline_regions(inner)
        _inline(node, inner, list(arguments))
        if not region.users:
            traced.graph.erase_node(region)
    traced.recompile()


def _refuse_autocast(device: str, dtype: torch.dtype | None, enabled: bool, *_: object) -> None:
    if enabled:
        half = "half precision" if dtype is None else str(dtype).removeprefix("torch.")
        raise GolowError(
            f"the model turns on autocast to {half} on {device} within its forward pass",
            "the levels that need a graph take the precision from golow: leave the autocast out "
            "of the model, and set the precision to bf16 or fp16.",
        )


def _inline(node: fx.Node, inner: fx.GraphModule, arguments: list[Any]) -> None:
    placeholders = inner.graph.find_nodes(op="placeholder")
    known = dict(zip(placeholders, arguments, strict=True))
    with node.graph.inserting_before(node):
        results: Any = node.graph.graph_copy(inner.graph, known)
    for user in list(node.users):
        if user.target is not getitem:
            raise RuntimeError(f"{user} uses a region's outputs as one tuple")
        user.replace_all_uses_with(results[user.args[1]])
        node.graph.erase_node(user)
    node.graph.erase_node(node)

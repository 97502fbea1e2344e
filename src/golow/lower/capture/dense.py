"""Graphs have dense tensors only."""

from __future__ import annotations

import torch
from torch import Tensor, fx

from golow.records.errors import GolowError


def require_dense(graph: fx.Graph) -> None:
    """Raise `GolowError` if an operation gives a sparse tensor, such as the gradient of a table."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, Tensor) and value.layout is not torch.strided:
            what = "an input or weight is" if node.op == "placeholder" else f"{node.target} gives"
            raise GolowError(
                f"{what} a sparse tensor, and the levels that need a graph have dense ones",
                "leave out sparse=True of nn.Embedding and nn.EmbeddingBag; elsewhere use "
                ".to_dense().",
            )

"""Checks of a solver's error codes. PyTorch keeps them in order by a token that goes from each to
the next one; a graph of values has neither."""

from __future__ import annotations

import operator

import torch
from torch import fx

CHECK = "_linalg_check_errors"


def without_checks(graph: fx.Graph) -> None:
    """Remove them: the token that each returns is the one that it was given."""
    for node in list(graph.nodes):
        ordered = node.op == "call_function" and node.target is torch.ops.higher_order.with_effects
        if not ordered or CHECK not in str(node.args[1]):
            continue
        for user in list(node.users):
            if user.target is operator.getitem and user.args[1] == 0:
                user.replace_all_uses_with(node.args[0])
                graph.erase_node(user)
        if not node.users:
            graph.erase_node(node)


def is_token(description: object) -> bool:
    """True if an input or output of a step is such a token."""
    return "Token" in type(description).__name__

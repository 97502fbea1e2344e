"""Shapes of attention, its operands as kernels lay them, and what is right."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from golow.levels.direct.cudnn.problems.products import AttentionProblem, Placed

NOTHING = torch.empty(0)


class Shape(NamedTuple):
    """added: the axes along which it is not repeated, e.g. ``BS`` for a mask of padding."""

    images: int
    heads: int
    groups: int
    rows: int
    keys: int
    width: int
    value_width: int
    causal: bool = False
    added: str | None = None


SHAPES = {
    "one row": Shape(1, 1, 1, 1, 1, 8, 8),
    "many": Shape(3, 4, 4, 197, 197, 64, 64),
    "causal": Shape(2, 3, 3, 130, 130, 64, 64, causal=True),
    "causal of fewer keys": Shape(2, 2, 2, 70, 33, 32, 32, causal=True),
    "causal of more keys": Shape(1, 2, 2, 33, 100, 32, 32, causal=True),
    "grouped": Shape(2, 6, 2, 65, 65, 40, 40, causal=True),
    "one for all": Shape(2, 4, 1, 16, 300, 64, 64),
    "other widths": Shape(2, 2, 2, 49, 50, 24, 56),
    "padding": Shape(3, 2, 2, 72, 72, 64, 64, added="BS"),
    "distances": Shape(2, 3, 3, 49, 56, 32, 32, added="HLS"),
    "odd distances": Shape(4, 3, 3, 49, 49, 32, 32, added="BHLS"),
    "odd padding": Shape(2, 3, 3, 37, 37, 32, 32, added="BS"),
    "scores of their own": Shape(2, 4, 2, 50, 64, 16, 16, added="BHLS"),
}
WIDE = {
    "wide": Shape(2, 2, 2, 100, 100, 128, 128, causal=True),
    "wider values": Shape(1, 2, 1, 65, 130, 72, 96),
}


def placed(tensor: Tensor) -> Placed:
    return Placed(tuple(tensor.shape), tuple(tensor.stride()))


def problem_of(shape: Shape, training: bool) -> AttentionProblem:
    tensors = operands(shape)
    query, key, value = (placed(tensors[name]) for name in ("query", "key", "value"))
    output = placed(tensors["output"])
    added = placed(tensors["added"]) if shape.added else None
    return AttentionProblem(
        query=query, key=key, value=value, output=output, dtype="float32", causal=shape.causal,
        scale=0.9 / math.sqrt(shape.width), keeps=training, added=added,
    )  # fmt: skip


def heads_of(*sizes: int, seed: int) -> Tensor:
    """[B, H, L, E] that is stored as [B, L, H, E], as a linear layer makes it."""
    images, heads, rows, width = sizes
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(images, rows, heads, width, generator=generator).transpose(1, 2)


def operands(shape: Shape) -> dict[str, Tensor]:
    images, heads, groups, rows, keys, width, value_width, _, added = shape
    found = {
        "query": 2 * heads_of(images, heads, rows, width, seed=1),
        "key": heads_of(images, groups, keys, width, seed=2),
        "value": heads_of(images, groups, keys, value_width, seed=3),
        "output": heads_of(images, heads, rows, value_width, seed=4),
        "gradient": heads_of(images, heads, rows, value_width, seed=5),
    }
    if added:
        sizes = {"B": images, "H": heads, "L": rows, "S": keys}
        own = [sizes[axis] if axis in added else 1 for axis in "BHLS"]
        generator = torch.Generator().manual_seed(6)
        numbers = torch.randn(own, generator=generator)
        numbers = torch.where(numbers > 1, -3e4, numbers)  # hidden
        numbers[..., 0] = 0  # each row sees something
        found["added"] = numbers
    return found


def right(
    shape: Shape, problem: AttentionProblem, given: dict[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """By definition, in float64."""
    made = {name: t.double() for name, t in (given or operands(shape)).items()}
    for name in ("query", "key", "value"):
        made[name].requires_grad_()
    share = shape.heads // shape.groups
    key, value = (made[name].repeat_interleave(share, 1) for name in ("key", "value"))
    scores = problem.scale * made["query"] @ key.transpose(2, 3) + made.get("added", 0)
    if shape.causal:
        hidden = torch.ones(shape.rows, shape.keys, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    output = scores.softmax(dim=3) @ value
    torch.autograd.backward(output, made["gradient"])
    gradients = {f"of {name}": made[name].grad for name in ("query", "key", "value")}
    return {
        "output": output.detach(),
        "logarithms": scores.logsumexp(dim=3).detach(),
        **{name: tensor for name, tensor in gradients.items() if tensor is not None},
    }


def memory(tensor: Tensor) -> Tensor:
    """The elements as they are stored: of heads, [B, L, H, E]."""
    return tensor.transpose(1, 2) if not tensor.is_contiguous() else tensor


def as_heads(found: Tensor, like: Tensor) -> Tensor:
    """What is stored as `memory(like)` does, with the axes of `like`."""
    return found if like.is_contiguous() else found.transpose(1, 2)

"""Tensors of which each rank holds a part, and the layers that are divided together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

CONTAINERS = (nn.Sequential, nn.ModuleList)


def whole(tensor: Tensor) -> Tensor:
    """The whole tensor, gathered from all ranks if each holds a part; they all must ask for it."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def own_part(tensor: Tensor) -> Tensor:
    """The part of the tensor that this rank holds."""
    part = getattr(tensor, "to_local", None)
    return tensor if part is None else part()


def fill(held: Tensor, whole: Tensor) -> None:
    """Copy a whole tensor into this one, of which this rank may hold a part. Every rank has read
    the whole tensor: none is sent."""
    whole = whole.to(held.device, held.dtype)
    divided: Any = held if hasattr(held, "full_tensor") else None
    if divided is not None:
        from torch.distributed.tensor import distribute_tensor  # its import takes 0.7 s

        mesh, placements = divided.device_mesh, divided.placements
        whole = distribute_tensor(whole, mesh, placements, src_data_rank=None)
    held.copy_(whole)


def sharding_units(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the blocks of a network, whose parameters are gathered together: the items of its
    outermost sequences and lists. A block that shares a parameter with another one is left to the
    whole network."""
    blocks = list(_blocks(module))
    uses = Counter(p for block in blocks for p in set(block.parameters()))
    inside = {p for block in blocks for p in block.parameters()}
    elsewhere = set(_parameters_outside(module, set(blocks)))
    for block in blocks:
        held = set(block.parameters())
        if held and not held & elsewhere and all(uses[p] == 1 for p in held & inside):
            yield block


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(module, CONTAINERS) and not isinstance(child, CONTAINERS):
            yield child
        else:
            yield from _blocks(child)


def _parameters_outside(module: nn.Module, blocks: set[nn.Module]) -> Iterator[nn.Parameter]:
    if module not in blocks:
        yield from module.parameters(recurse=False)
        for child in module.children():
            yield from _parameters_outside(child, blocks)

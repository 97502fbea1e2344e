"""Which inputs of an example have the batch as their first axis, where their sizes differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from golow.lower.capture.module_outputs import leaves_of
from golow.records.errors import GolowError


def first_axis(tensors: Sequence[Tensor]) -> int:
    """The batch of an example that is only run as it is: of its first input with an axis."""
    return next((item.shape[0] for item in tensors if item.dim()), 1)


def batch_of(module: nn.Module, tensors: Sequence[Tensor]) -> int:
    """The size of the batch, among different sizes of first axes the one that can be doubled: the
    module then runs, and gives twice the rows. module: takes the tensors by position. Raises
    `GolowError` if there is none, or more than one."""
    sizes = list(dict.fromkeys(item.shape[0] for item in tensors if item.dim()))
    once = _outputs(module, [item.clone() for item in tensors]) if len(sizes) > 1 else None
    if once is None:  # whoever runs the module next states why it does not
        return first_axis(tensors)
    found = [size for size in sizes if _doubles(once, _outputs(module, _twice(tensors, size)))]
    if len(found) == 1:
        return found[0]
    shapes = ", ".join("x".join(map(str, item.shape)) or "one number" for item in tensors)
    which = f"both {found[0]} and {found[1]} can be" if found else "none of the first axes is"
    raise GolowError(
        f"the inputs are {shapes}, and {which} the batch",
        "give an example in which all inputs of a batch have the same first axis, and no other "
        "input has it; or leave batch= out, and compile for each size separately.",
    )


@torch.no_grad()
def _outputs(module: nn.Module, tensors: Sequence[Tensor]) -> list[Any] | None:
    """The outputs; None if the module does not take these inputs."""
    try:
        return leaves_of(module(*tensors))
    except Exception:  # of the module's own code
        return None


def _twice(tensors: Sequence[Tensor], size: int) -> list[Tensor]:
    """The inputs with twice as many rows where they have that many."""
    return [
        torch.cat([item, item]) if item.dim() and item.shape[0] == size else item.clone()
        for item in tensors
    ]


def _doubles(once: Sequence[Any], twice: Sequence[Any] | None) -> bool:
    """Return True if every output has twice the rows."""
    if twice is None or len(once) != len(twice):
        return False
    pairs = zip(once, twice, strict=True)
    return all(
        isinstance(one, Tensor) and one.dim() and other.shape[0] == 2 * one.shape[0]
        for one, other in pairs
    )

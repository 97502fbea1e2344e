"""Outputs that belong to the caller: nothing else reads or writes their memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from golow.lower.capture.module_outputs import flattened

ALONE = 2  # uses of a storage that one tensor has: the tensor's, and the one that asks


def own_output(run: Callable[[tuple[Tensor, ...]], Any], inputs: tuple[Tensor, ...]) -> Any:
    """The output of a run, with a copy of each tensor that shares memory with an
    input or a weight that the module returns, a constant that it keeps, or another output."""
    leaves, structure = flattened(run(inputs))
    # Other tensors over the same memory: when the run's own are gone, others hold what is shared.
    found = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    del leaves
    tensors = [leaf.clone() if _is_shared(leaf) else leaf for leaf in found]
    return tensors[0] if structure.is_tensor else structure.filled(tensors)


def _is_shared(leaf: Any) -> bool:
    if not isinstance(leaf, Tensor):
        return False
    return torch._C._storage_Use_Count(leaf.untyped_storage()._cdata) > ALONE

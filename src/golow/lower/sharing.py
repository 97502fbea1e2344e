"""Tensors of a module that have several names."""

from __future__ import annotations

from torch import nn


def first_names(module: nn.Module) -> dict[str, str]:
    """Maps every name of a parameter or buffer to the first name of the same tensor, which is the
    one that PyTorch uses."""
    found: dict[str, str] = {}
    for named in (module.named_parameters, module.named_buffers):
        names: dict[int, str] = {}
        for name, tensor in named(remove_duplicate=False):
            found[name] = names.setdefault(id(tensor), name)
    return found

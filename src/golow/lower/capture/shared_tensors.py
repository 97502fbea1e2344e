"""Tensors of a module that have several names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def own_tensors_kept(module: nn.Module) -> Iterator[None]:
    """Restore the module's own tensors afterwards: what replaces them for a while, a tracer or
    ``functional_call``, may leave the replacement in a layer that has two names."""
    kept = [(child, dict(child._parameters), dict(child._buffers)) for child in module.modules()]
    try:
        yield
    finally:
        for child, parameters, buffers in kept:
            child._parameters.update(parameters)
            child._buffers.update(buffers)

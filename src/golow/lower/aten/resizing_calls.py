"""Resizing as one call in the record of a training step. PyTorch's tracer has separate
definitions for it, which read four elements by their indices for each of the result, and add to
them one by one in the gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch._C import DispatchKey

from golow.lower.decompositions.resize import DEFINITIONS

_DEFINED_AT = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)


@contextmanager
def resizing_whole() -> Iterator[None]:
    """Within the block PyTorch differentiates resizing as ATen does, by one call for the gradient,
    where golow has a definition of both."""
    with ExitStack() as stack:
        for name in DEFINITIONS:
            stack.enter_context(_without_definition(name))
        yield


@contextmanager
def _without_definition(name: str) -> Iterator[None]:
    _, packet, overload = name.split(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload)
    kernels = operator.py_kernels
    kept = {key: kernels.pop(key) for key in _DEFINED_AT if key in kernels}
    operator._dispatch_cache.clear()
    try:
        yield
    finally:
        kernels.update(kept)
        operator._dispatch_cache.clear()

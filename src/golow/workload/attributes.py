"""Python attributes of a module's layers, which a forward pass may change: counters, lists, caches,
the hidden state of the call before. They are not part of the state dict, so no level carries them.

A value is taken as plain data: numbers, text, tensors, and containers and objects of such. What
else there is (functions, layers, files) counts as unchanged.
"""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Attributes = dict[str, Any]
"""Content of each attribute, by its path: ``layer.calls``."""

OF_EVERY_MODULE = frozenset(vars(nn.Module())) | {"_flat_weights"}
LARGEST, DEEPEST = 10_000, 4
"""Entries of a container that are looked at, and containers within containers."""
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


def attributes_of(module: nn.Module) -> Attributes:
    """Copies of what the attributes of all layers hold."""
    return {
        f"{path}.{name}" if path else name: _plain(value, 0)
        for path, layer in module.named_modules()
        for name, value in vars(layer).items()
        if name not in OF_EVERY_MODULE and not name.startswith("golow_")
    }


def changed(before: Attributes, after: Attributes, tolerance: float = 0.0) -> tuple[str, ...]:
    """The paths of the attributes that differ, or that one of both lacks. tolerance: of tensors,
    relative to their largest element."""
    return tuple(
        path
        for path in sorted(before.keys() | after.keys())
        if path not in before
        or path not in after
        or not _same(before[path], after[path], tolerance)
    )


def shown(value: Any) -> str:
    """A value in a message: a number or a short text as it is, a tensor by its shape."""
    if isinstance(value, Tensor):
        return f"a tensor of {'x'.join(map(str, value.shape)) or 'one number'}"
    text = repr(value)
    return text if isinstance(value, PLAIN) and len(text) <= 20 else ""


def copied_sharing_weights(module: nn.Module) -> nn.Module | None:
    """A copy with separate attributes over the same parameters and buffers; None for a module
    that Python cannot copy."""
    tensors = (*module.parameters(), *module.buffers())
    try:
        return copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})
    except Exception:  # whatever the user's classes raise
        return None


# ---------------------------------------------------------------- values as plain data


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Tensor):
        return None if isinstance(value, nn.Parameter) else _copied(value)
    if isinstance(value, np.ndarray):
        return value.copy() if value.dtype != object else value.shape
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, random.Random):
        return value.getstate()
    if depth == DEEPEST or isinstance(value, (nn.Module, type)) or callable(value):
        return None
    if isinstance(value, Mapping):
        return _entries(value, depth) if len(value) <= LARGEST else len(value)
    if isinstance(value, (Sequence, deque)):
        few = len(value) <= LARGEST
        return [_plain(item, depth + 1) for item in value] if few else len(value)
    if isinstance(value, Set):
        return {item for item in value if isinstance(item, PLAIN)}
    return _entries(getattr(value, "__dict__", {}), depth)


def _entries(mapping: Mapping[Any, Any], depth: int) -> dict[Any, Any]:
    return {repr(key): _plain(item, depth + 1) for key, item in mapping.items()}


def _copied(tensor: Tensor) -> Tensor | None:
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        return None
    return tensor.detach().clone()


def _same(one: Any, other: Any, tolerance: float) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return _same_tensor(one, other, tolerance)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(
            one, other, equal_nan=one.dtype.kind == "f"
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            _same(one[key], other[key], tolerance) for key in one
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(
            _same(a, b, tolerance) for a, b in zip(one, other, strict=True)
        )
    return bool(one == other) or (one != one and other != other)


def _same_tensor(one: Tensor, other: Tensor, tolerance: float) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    if one.is_meta or not one.numel():
        return True
    if not one.is_floating_point() and not one.is_complex():
        return torch.equal(one, other)
    if not torch.equal(one.isnan(), other.isnan()):
        return False
    far = (one - other).nan_to_num().abs().max()
    return bool(far <= tolerance * one.nan_to_num().abs().max())

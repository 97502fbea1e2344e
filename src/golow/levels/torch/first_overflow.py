"""The layer in which a model's numbers stop being finite."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_iter

from golow.records.errors import GolowError

WATCHED = "watched"
"""A file of a bundle whose reference stops in that layer."""


def watch(module: nn.Module) -> None:
    """Let every layer raise `GolowError`, which names it, if a result is not finite. A layer ends
    before the one that contains it, so that the smallest is named."""
    for name, layer in module.named_modules():
        layer.register_forward_hook(partial(_require_finite, name))


def _require_finite(name: str, layer: nn.Module, given: Any, result: Any) -> None:
    if _is_finite(result):
        return
    kind = type(layer).__name__
    where = f"layer {name} ({kind})" if name else f"the forward of {kind} itself"
    raise GolowError(where if _is_finite(given) else f"the input of {where}")


def _is_finite(values: Any) -> bool:
    floats = (v for v in tree_iter(values) if isinstance(v, Tensor) and v.is_floating_point())
    return all(bool(torch.isfinite(value).all()) for value in floats)

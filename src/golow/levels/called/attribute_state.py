"""Finds state that a module keeps in attributes of its layers, besides parameters and buffers. A
plan would have it as a constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from golow.records.errors import GolowError

Marks = dict[str, tuple[int, int]]


def require_stateless(module: nn.Module, run: Callable[[], Any]) -> Any:
    """Run the module and return what ``run`` does. Raises `GolowError` for one whose attributes
    change; what is only noted, such as a table made on first use or the last scores, is the same
    after a second run."""
    before = _marks(module)
    output = run()
    written = [name for name, mark in _marks(module).items() if before.get(name) != mark]
    if not written:
        return output
    first = {name: _copied(_attributes(module).get(name)) for name in written}
    run()
    second = _attributes(module)
    for name in written:
        if not _is_equal(first[name], second.get(name)):
            raise GolowError(
                f"the module changes its attribute {name} in each pass, and a plan would keep the "
                "value that it has now",
                "make it an input and an output, or leave it out in inference.",
            )
    return output


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Return the layers' own attributes, by path and name."""
    return {
        f"{path}.{name}".removeprefix("."): value
        for path, layer in module.named_modules()
        for name, value in vars(layer).items()
        if not name.startswith("_") and name != "training"
    }


def _marks(module: nn.Module) -> Marks:
    """Which objects these are, and how often a tensor was written or how much a container holds."""
    return {name: (id(value), _extent(value)) for name, value in _attributes(module).items()}


def _extent(value: Any) -> int:
    if isinstance(value, Tensor):
        return -1 if value.is_inference() else value._version
    return len(value) if isinstance(value, (list, dict, set)) else 0


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return value.copy() if isinstance(value, (list, dict, set)) else value


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        same = isinstance(other, Tensor) and one.shape == other.shape
        return same and torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))
    if isinstance(one, (list, dict, set)):
        return len(one) == len(other)
    if isinstance(one, (bool, int, float, str, type(None))):
        return bool(one == other)
    return True  # an object that is made anew each time

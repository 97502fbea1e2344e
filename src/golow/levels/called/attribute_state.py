"""Finds state that a module keeps in attributes of its layers, besides parameters and buffers. A
plan would have it as a constant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from golow.levels.called.given_state import written
from golow.records.errors import GolowError

Marks = dict[str, tuple[int, int]]
PYTORCHS = vars(nn.Module()).keys()
"""Attributes that every layer has: its mode, its parts, its hooks."""
DEEPEST = 3
"""Levels of containers and objects that are looked into."""
MOST = 1000
"""Elements of a container up to which it is looked into: a table of words is no state."""
WHOLE = (nn.Module, type, FunctionType, ModuleType, Tensor)
"""Kinds whose instances are not looked into: layers are listed by themselves."""


def require_stateless(module: nn.Module, run: Callable[[], Any]) -> Any:
    """Run the module and return what ``run`` does. Raises `GolowError` for one whose attributes
    change; what is only noted, such as a table made on first use or the last scores, is the same
    after a second run."""
    before = _marks(module)
    output = run()
    changed = [name for name, mark in _marks(module).items() if before.get(name) != mark]
    if not changed:
        return output
    first = {name: _copied(item) for name, item in _attributes(module).items() if name in changed}
    run()
    second = _attributes(module)
    for name in changed:
        if not _is_equal(first[name], second.get(name)):
            raise GolowError(
                f"the module changes its attribute {name} in each pass, and a plan would keep the "
                "value that it has now",
                "make it an input and an output, or leave it out in inference.",
            )
    return output


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Return the layers' own attributes, and what these hold, by path and name."""
    seen: set[int] = set()
    return {
        held: item
        for path, layer in module.named_modules()
        for name, value in vars(layer).items()
        if name not in PYTORCHS
        for held, item in _held(f"{path}.{name}".removeprefix("."), value, DEEPEST, seen)
    }


def _held(name: str, value: Any, deep: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield the value, and what it holds if it was not seen before."""
    yield name, value
    if not deep or isinstance(value, WHOLE) or id(value) in seen:
        return
    seen.add(id(value))
    for part, item in _parts(name, value):
        yield from _held(part, item, deep - 1, seen)


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the elements of a container, or the attributes of another object."""
    if isinstance(value, (list, tuple, dict)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        if len(value) <= MOST:
            yield from ((f"{name}[{key!r}]", item) for key, item in items)
        return
    for attribute, item in getattr(value, "__dict__", {}).items():
        yield f"{name}.{attribute}", item


def _marks(module: nn.Module) -> Marks:
    """Which objects these are, and how often a tensor was written or how much a container holds."""
    return {name: (id(value), _extent(value)) for name, value in _attributes(module).items()}


def _extent(value: Any) -> int:
    if isinstance(value, Tensor):
        return written(value)
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

"""golow's own definitions of ATen's calls, for those that PyTorch does not define by simpler ones,
or defines by more than is needed. Each file has ``DEFINITIONS``: ATen's names, each with a function
of the call's arguments that calls ATen. It returns NotImplemented where it does not apply."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any


@cache
def own_definitions() -> Mapping[str, Callable[..., Any]]:
    """Every definition by ATen's full name."""
    from golow.lower.ir.operator import modules_in

    found: dict[str, Callable[..., Any]] = {}
    for module in modules_in(importlib.import_module(__name__)):
        found |= getattr(module, "DEFINITIONS", {})
    return found

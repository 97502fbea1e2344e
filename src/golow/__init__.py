"""golow: run a PyTorch model at every level of abstraction, prove that the levels agree, and
measure what each one costs.

The names here are the public API. They are loaded when they are first used, because a worker
without a framework imports this package too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from golow.comparison import Interrupted, Result, compare
    from golow.record import GolowError, Optimizer
    from golow.store import load

__all__ = ["GolowError", "Interrupted", "Optimizer", "Result", "compare", "load"]

_HOMES = {
    "GolowError": "golow.record",
    "Interrupted": "golow.comparison",
    "Optimizer": "golow.record",
    "Result": "golow.comparison",
    "compare": "golow.comparison",
    "load": "golow.store",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'golow' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

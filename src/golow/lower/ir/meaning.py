"""The meanings of the vocabulary's operators as functions on torch tensors, by name:
``meaning.softmax(x=..., axis=1, log=False)``. A printed graph calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from golow.lower.ir.graph import Activation
from golow.lower.ir.operator import PREFIX, vocabulary

__all__ = ["Activation"]


def __getattr__(name: str) -> Callable[..., Any]:
    operator = vocabulary().get(PREFIX + name)
    if operator is None:
        raise AttributeError(f"golow has no operator {name!r}")
    return operator.meaning

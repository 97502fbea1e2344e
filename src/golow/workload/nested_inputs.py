"""An input that holds tensors instead of being one: how to give a model its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass


def hint_for(item: object, otherwise: str) -> str:
    """How to give an input that is not a tensor. otherwise: the hint for one that holds none."""
    if not isinstance(item, Mapping | list | tuple) and not is_dataclass(item):
        return otherwise
    keys = list(map(str, item)) if isinstance(item, Mapping) else []
    names = ", ".join(keys) if keys and all(map(str.isidentifier, keys)) else "*tensors"
    return (
        f"write a module around it with forward(self, {names}), which puts these together, and "
        "give the tensors as its inputs."
    )

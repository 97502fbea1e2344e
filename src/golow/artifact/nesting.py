"""How a module's output is nested, written so that it can be made again without the module's own
classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from golow.artifact.manifest import Nest
from golow.records.errors import GolowError


def nest_of(numbered: Any) -> Nest:
    """The nesting of an output whose tensors are replaced by their numbers. Raises `GolowError` for
    one that is in no class of Python's own, nor a data class."""
    if numbered is None:
        return Nest(kind="nothing")
    if isinstance(numbered, int):
        return Nest(kind="tensor", tensor=numbered)
    if isinstance(numbered, tuple) and hasattr(numbered, "_fields"):
        return _mapping(dict(zip(numbered._fields, numbered, strict=True)))
    if isinstance(numbered, Mapping):
        return _mapping(numbered)
    if is_dataclass(numbered):
        return _mapping({one.name: getattr(numbered, one.name) for one in fields(numbered)})
    if isinstance(numbered, list | tuple):
        parts = tuple(map(nest_of, numbered))
        return Nest(kind="list" if isinstance(numbered, list) else "tuple", parts=parts)
    raise GolowError(
        f"the module returns {type(numbered).__name__}, which cannot be saved",
        "wrap the module in one that returns tensors, tuples, lists or dicts.",
    )


def _mapping(items: Mapping[Any, Any]) -> Nest:
    odd = [key for key in items if type(key) not in (str, int)]
    if odd:
        raise GolowError(
            f"the module returns a dict with the key {odd[0]!r}, which cannot be saved",
            "use texts or whole numbers as keys.",
        )
    return Nest(
        kind="mapping",
        names=tuple(items),
        parts=tuple(nest_of(item) for item in items.values()),
    )


def nested(nest: Nest, tensors: Sequence[Any]) -> Any:
    """The output with these tensors."""
    if nest.kind == "tensor":
        return tensors[nest.tensor]
    if nest.kind == "nothing":
        return None
    parts = [nested(part, tensors) for part in nest.parts]
    if nest.kind == "mapping":
        return dict(zip(nest.names, parts, strict=True))
    return parts if nest.kind == "list" else tuple(parts)


def tensors_in(nest: Nest, output: Any) -> dict[int, Any]:
    """The tensors of an output of that nesting, by their numbers. Raises `ValueError` for another
    nesting."""
    if nest.kind == "tensor":
        return {nest.tensor: output}
    if nest.kind == "nothing":
        if output is not None:
            raise ValueError("something where the module returns nothing")
        return {}
    if nest.kind == "mapping":
        if not isinstance(output, Mapping) or tuple(output) != nest.names:
            raise ValueError(f"no mapping of {', '.join(map(str, nest.names))}")
        output = list(output.values())
    elif not isinstance(output, list if nest.kind == "list" else tuple):
        raise ValueError(f"no {nest.kind}")
    found: dict[int, Any] = {}
    for part, item in zip(nest.parts, output, strict=True):
        found |= tensors_in(part, item)
    return found

"""Options of public functions that are declared once: their names and types in a `TypedDict` for
type checkers, their defaults in the record that they become."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from inspect import Parameter
from typing import Any, TypeVar, cast

from golow.records.errors import GolowError
from golow.records.near_names import meant

NUMBERS = ("int", "int | None", "float", "float | None")
"""Annotations of parameters that are numbers."""

Function = TypeVar("Function", bound=Callable[..., Any])


def with_options(options: type, record: type) -> Callable[[Function], Function]:
    """Spell out the last parameter of a function, ``**name: Unpack[options]``.

    options: a `TypedDict`. record: a dataclass that has a field for each of them.
    `inspect.signature`, `help` and completion show every option with its type and default, and any
    other keyword is a `TypeError`, as if the function listed them. Where the function takes a
    number or a list, a text is a `GolowError`.
    """
    known = {field.name: field for field in fields(record)}
    spelled_out = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in map(known.__getitem__, options.__annotations__)
    ]

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        *own, _ = signature.parameters.values()
        parameters = sorted([*spelled_out, *own], key=lambda parameter: parameter.kind)
        accepted = {parameter.name: parameter for parameter in parameters}

        @wraps(function)
        def checked(*arguments: Any, **keywords: Any) -> Any:
            for name in keywords:
                if name not in accepted:
                    raise TypeError(
                        f"{function.__name__}() got an unexpected keyword argument {name!r}"
                        f"; {meant(name, accepted)}".rstrip("; ")
                    )
                _require_no_text(accepted[name], keywords[name])
            return function(*arguments, **keywords)

        checked.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return cast(Function, checked)

    return decorate


def _require_no_text(parameter: Parameter, value: object) -> None:
    """Raise `GolowError` for a text where the function takes a number or a list: the letters of a
    text would be taken for the items of a list."""
    if not isinstance(value, str):
        return
    name, kind = parameter.name, str(parameter.annotation)
    if kind.startswith("Sequence["):
        of_names = not kind.startswith(("Sequence[int]", "Sequence[float]"))
        items = [item.strip() for item in value.split(",")]
        raise GolowError(
            f"{name}={value!r} is a text, not a list of {'names' if of_names else 'numbers'}",
            f"use {name}={items if of_names else [1, 2]}.",
        )
    if kind in NUMBERS:
        raise GolowError(
            f"{name}={value!r} is not a number",
            "give a number; times are in seconds."
            if parameter.default is None
            else f"for example {name}={parameter.default}.",
        )

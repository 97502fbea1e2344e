"""Options of public functions that are declared once: their names and types in a `TypedDict` for
type checkers, their defaults in the record that they become."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from inspect import Parameter
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


def with_options(options: type, record: type) -> Callable[[Function], Function]:
    """Spell out the last parameter of a function, ``**name: Unpack[options]``.

    options: a `TypedDict`. record: a dataclass that has a field for each of them.
    `inspect.signature`, `help` and completion show every option with its type and default, and any
    other keyword is a `TypeError`, as if the function listed them.
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
        names = {parameter.name for parameter in parameters}

        @wraps(function)
        def checked(*arguments: Any, **keywords: Any) -> Any:
            for name in keywords:
                if name not in names:
                    raise TypeError(
                        f"{function.__name__}() got an unexpected keyword argument {name!r}"
                    )
            return function(*arguments, **keywords)

        checked.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return cast(Function, checked)

    return decorate

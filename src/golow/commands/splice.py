"""Groups of options: a command takes a dataclass, its command line has an option for each field."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Any

from golow.commands.panels import in_panel


def splice(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer takes it: in place of a parameter that is a dataclass, its fields.

    The help lists them where the parameter stands. Such a dataclass is keyword-only; a command
    names the parameter after ``*``, because it has no default of its own.
    """
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {}
    options: list[Parameter] = []
    for parameter in signature.parameters.values():
        group = parameter.annotation
        if isinstance(group, type) and is_dataclass(group):
            groups[parameter.name] = group
            options += inspect.signature(group, eval_str=True).parameters.values()
        else:
            options.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def spliced(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    grouped = [in_panel(option) for option in options]
    spliced.__signature__ = signature.replace(parameters=grouped)  # type: ignore[attr-defined]
    return spliced

"""Settings that have a default: one file per choice, found by looking into this folder."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import NamedTuple

from golow.levels.choices.choice import Alternative, Choice

__all__ = ["Alternative", "Choice", "ChoiceAlternative", "all_choices", "find"]


class ChoiceAlternative(NamedTuple):
    """An alternative and the choice that it belongs to."""

    choice: Choice
    alternative: Alternative


@functools.cache
def all_choices() -> tuple[Choice, ...]:
    """Every choice, by name. A file declares one, or several of a kind, under ``CHOICES``."""
    modules = (
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
    )
    found = [choice for module in modules for choice in getattr(module, "CHOICES", ())]
    return tuple(sorted(found, key=lambda choice: choice.name))


@functools.cache
def find(name: str) -> tuple[ChoiceAlternative, ...]:
    """The alternatives of that name; none if there are none. Several choices may use a name only at
    different levels (a variant of one, a call at another)."""
    return tuple(
        ChoiceAlternative(choice, alternative)
        for choice in all_choices()
        for alternative in choice.alternatives
        if alternative.name == name
    )

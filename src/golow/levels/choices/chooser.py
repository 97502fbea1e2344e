"""The worker's side of choices: a program takes alternatives and states what is in effect."""

from __future__ import annotations

from collections.abc import Sequence

from golow.levels.choices import all_choices, find
from golow.records.errors import GolowError


class Chooser:
    """A part of every Python worker's program."""

    def choose(self, names: Sequence[str]) -> None:
        """Make these alternatives, so far as a call does that, before the program loads. Raises
        `GolowError` for a name that no choice has."""
        for name in names:
            if not find(name):
                raise GolowError(f"there is no choice {name!r}")
            for call in {found.alternative.call for found in find(name)}:
                if call is not None:
                    call(self)

    def choices(self, names: Sequence[str]) -> dict[str, str]:
        """The values in effect of the choices with these names."""
        return {
            choice.name: choice.read(self)
            for choice in all_choices()
            if choice.name in names and choice.read is not None
        }

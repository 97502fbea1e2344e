"""Progress events of a running program; the command line draws them."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Receives progress events."""

    def stage(self, text: str) -> None:
        """A step begins that may take seconds."""

    def notice(self, text: str) -> None:
        """Something that the user should know at once."""

    def race(self, rounds: int, seconds: float, limit: float, widest: float) -> None:
        """A round of the race is done; widest is the widest relative interval so far."""


class Silent:
    """An observer that does nothing."""

    def stage(self, text: str) -> None:
        """Do nothing."""

    def notice(self, text: str) -> None:
        """Do nothing."""

    def race(self, rounds: int, seconds: float, limit: float, widest: float) -> None:
        """Do nothing."""

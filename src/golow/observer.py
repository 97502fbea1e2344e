"""Progress events of a running program; the command line draws them."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Receives progress events."""

    def stage(self, text: str) -> None:
        """A step begins that may take seconds."""

    def race(self, rounds: int, seconds: float, limit: float, widest: float) -> None:
        """A round of the race is done; widest is the widest relative interval so far."""


class Silent:
    """An observer that does nothing."""

    def stage(self, text: str) -> None:
        """Do nothing."""

    def race(self, rounds: int, seconds: float, limit: float, widest: float) -> None:
        """Do nothing."""


def notice(observer: Observer, text: str) -> None:
    """Tell the user something at once: by the observer's ``notice`` if it has one, else as a stage,
    which an observer may show only when it ends."""
    getattr(observer, "notice", observer.stage)(text)

"""The progress of a running audit; the command line draws it."""

from __future__ import annotations

import time
from typing import Protocol

from golow.observer import Observer, Silent

START = 4.0  # seconds that an entrant takes to start and be checked, before any was seen to


class AuditObserver(Observer, Protocol):
    """Receives the progress of an audit."""

    def left(self, seconds: float) -> None:
        """The next stages and all after them take about this many seconds."""


class SilentAudit(Silent):
    """An observer that does nothing."""

    def left(self, seconds: float) -> None:
        """Do nothing."""


class Pace:
    """Time that an audit still takes, estimated from the time per entrant so far. entrants: of all
    races known to come. seconds: race time per entrant.
    """

    def __init__(self, entrants: int, seconds: float) -> None:
        self._waiting, self._done = entrants, 0
        self._guess = seconds + START
        self._began = time.monotonic()

    def more(self, entrants: int) -> None:
        """Add a race that was not known before, or remove entrants (negative)."""
        self._waiting += entrants

    def raced(self, entrants: int) -> None:
        """A race of this many entrants is done."""
        self._waiting -= entrants
        self._done += entrants

    def left(self) -> float:
        """Seconds until the last known race is done."""
        each = (time.monotonic() - self._began) / self._done if self._done else self._guess
        return self._waiting * each

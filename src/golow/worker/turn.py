"""Whose turn it is on a card that several comparisons share: they prepare beside one another, and
one alone is timed.

Both locks are the kernel's (flock on files of one folder) and end with the process that holds them,
however that ends. Who wants the card alone waits for those who are on it; the gate keeps others
from coming meanwhile, so that nobody waits for ever.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from golow.record import GolowError


class Turn:
    """One comparison among those that share a card.

    folder: the same for all of them; it is made if need be. None where nobody shares the card, so
    that there is nothing to wait for. Raises `GolowError` where the folder cannot be.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._locks = None if folder is None else _locks(folder)
        self._is_alone = False

    @property
    def is_shared(self) -> bool:
        """Whether there are others."""
        return self._locks is not None

    @contextmanager
    def beside(self) -> Iterator[None]:
        """On the card beside others that are not timed either; part of `alone` inside of it."""
        if self._is_alone:
            yield
        else:
            with self._taken(fcntl.LOCK_SH):
                yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Alone on the card; must not begin inside of `beside`, which would wait for itself."""
        with self._taken(fcntl.LOCK_EX):
            self._is_alone = True
            try:
                yield
            finally:
                self._is_alone = False

    @property
    def is_wanted(self) -> bool:
        """Within `beside`: whether somebody waits at the gate, for the card alone or behind one who
        does."""
        return self._locks is not None and not self._is_alone and self._locks.is_gate_taken()

    def step_aside(self) -> None:
        """Within `beside`: leave the card to who waits for it, and come back after."""
        if self._locks is not None:
            self._locks.step_aside()

    def _taken(self, how: int) -> AbstractContextManager[None]:
        return nullcontext() if self._locks is None else self._locks.taken(how)


class _Locks(NamedTuple):
    """Descriptors of the two files."""

    gate: int
    card: int

    @contextmanager
    def taken(self, how: int) -> Iterator[None]:
        """The card, shared or alone (a constant of flock), through the gate."""
        with _held(self.gate, fcntl.LOCK_EX):
            fcntl.flock(self.card, how)
        try:
            yield
        finally:
            fcntl.flock(self.card, fcntl.LOCK_UN)

    def step_aside(self) -> None:
        """Give the shared card back, and take it again through the gate."""
        fcntl.flock(self.card, fcntl.LOCK_UN)
        with _held(self.gate, fcntl.LOCK_EX):
            fcntl.flock(self.card, fcntl.LOCK_SH)

    def is_gate_taken(self) -> bool:
        """By somebody else, now."""
        try:
            fcntl.flock(self.gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self.gate, fcntl.LOCK_UN)
        return False


def _locks(folder: Path) -> _Locks:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _Locks(_open(folder / "gate"), _open(folder / "card"))
    except OSError as error:
        raise GolowError(
            f"{folder} cannot be used: {error.strerror or error}",
            "cells take turns there; name another folder with GOLOW_CACHE.",
        ) from error


def _open(file: Path) -> int:
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


@contextmanager
def _held(handle: int, how: int) -> Iterator[None]:
    fcntl.flock(handle, how)
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)

"""Turns on a GPU that several comparisons share: they prepare at the same time, but each is timed
alone.

Both locks are the kernel's (flock on files of one folder) and end with the process that holds them,
however it ends. An exclusive request waits for current users of the GPU; the gate blocks new users
meanwhile, so that no request starves.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from golow.records.errors import GolowError


class Turn:
    """One comparison among those that share a GPU.

    folder: the same for all of them; it is created if needed. None if the GPU is not shared, so
    there is nothing to wait for. Raises `GolowError` if the folder cannot be used.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._locks = None if folder is None else _locks(folder)
        self._is_alone = False

    @property
    def is_shared(self) -> bool:
        """True if the GPU may be shared with others."""
        return self._locks is not None

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Shared use of the GPU, with others that are not timed either; no-op inside `alone`."""
        if self._is_alone:
            yield
        else:
            with self._taken(fcntl.LOCK_SH):
                yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Exclusive use of the GPU; must not begin inside `beside`, which would wait for itself."""
        with self._taken(fcntl.LOCK_EX):
            self._is_alone = True
            try:
                yield
            finally:
                self._is_alone = False

    @property
    def is_wanted(self) -> bool:
        """Inside `beside`: whether another process waits at the gate, for exclusive use or behind
        one that does."""
        return self._locks is not None and not self._is_alone and self._locks.is_gate_taken()

    def step_aside(self) -> None:
        """Inside `beside`: yield the GPU to those that wait for it, then take it again."""
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
        """Take the GPU, shared or exclusive (a constant of flock), through the gate."""
        with _held(self.gate, fcntl.LOCK_EX):
            fcntl.flock(self.card, how)
        try:
            yield
        finally:
            fcntl.flock(self.card, fcntl.LOCK_UN)

    def step_aside(self) -> None:
        """Release the shared GPU, and take it again through the gate."""
        fcntl.flock(self.card, fcntl.LOCK_UN)
        with _held(self.gate, fcntl.LOCK_EX):
            fcntl.flock(self.card, fcntl.LOCK_SH)

    def is_gate_taken(self) -> bool:
        """True if another process holds it now."""
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
            "cells take turns there; choose another folder with GOLOW_CACHE.",
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

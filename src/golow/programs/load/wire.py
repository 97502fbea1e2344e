"""Messages between the load generator and a level's process: sample numbers in one direction,
answers in the other."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

REQUEST = struct.Struct("<II")  # number of the request; index of its sample
ANSWER = struct.Struct("<II")  # number of the request; bytes of the answer, which follow
PIECE = 1 << 18  # bytes read at a time


@contextmanager
def short_path(path: str) -> Iterator[str]:
    """A path of a socket that the system takes, which is 107 bytes at most: by the descriptor of
    its folder, which may have a longer name."""
    place = Path(path)
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{place.name}"
    finally:
        os.close(folder)


class Asked(NamedTuple):
    """A request: its number in the run, and the sample that it is about."""

    number: int
    sample: int


class Requests:
    """The requests that arrive at a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._rest = connection, b""

    def received(self) -> list[Asked]:
        """Requests that have arrived, at least one; empty at the end."""
        while len(self._rest) < REQUEST.size:
            data = self._connection.recv(PIECE)
            if not data:
                return []
            self._rest += data
        whole = len(self._rest) // REQUEST.size * REQUEST.size
        data, self._rest = self._rest[:whole], self._rest[whole:]
        return [Asked(*pair) for pair in REQUEST.iter_unpack(data)]


class Answers:
    """Assembles answers that arrive in pieces."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def add(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the complete answers: the request's number, and its bytes."""
        self._rest += data
        place = 0
        while len(self._rest) - place >= ANSWER.size:
            number, size = ANSWER.unpack_from(self._rest, place)
            end = place + ANSWER.size + size
            if len(self._rest) < end:
                break
            yield number, bytes(self._rest[place + ANSWER.size : end])
            place = end
        del self._rest[:place]


def requests(asked: Sequence[Asked]) -> bytes:
    """The bytes of requests."""
    return b"".join(REQUEST.pack(*one) for one in asked)


def answers(numbered: Iterable[tuple[int, bytes]]) -> bytes:
    """The bytes of answers, each with the number of its request; large ones are copied once."""
    return b"".join(
        part
        for number, content in numbered
        for part in (ANSWER.pack(number, len(content)), content)
    )

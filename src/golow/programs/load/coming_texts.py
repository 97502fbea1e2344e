"""Texts on their way: a token in each message, and an empty one behind the last.

An answer to a sample is one message, an answer that is a text several. Both sides of the socket
take tokens in the form that is defined here.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

TOKEN = struct.Struct("<I")
END = b""


class Arrived(NamedTuple):
    """The first tokens among new messages, and the texts that are whole with them: each by the
    number of its request."""

    first: list[tuple[int, bytes]]
    whole: list[tuple[int, bytes]]


class ComingTexts:
    """Puts the tokens of texts together."""

    def __init__(self) -> None:
        self._texts: dict[int, list[bytes]] = defaultdict(list)

    def add(self, messages: Iterable[tuple[int, bytes]]) -> Arrived:
        """Take messages in the order in which they came."""
        found = Arrived([], [])
        for number, content in messages:
            if content == END:
                found.whole.append((number, b"".join(self._texts.pop(number, []))))
                continue
            if number not in self._texts:
                found.first.append((number, content))
            self._texts[number].append(content)
        return found


def tokens_in(text: bytes) -> tuple[int, ...]:
    """The tokens of a text."""
    return tuple(token for (token,) in TOKEN.iter_unpack(text))

"""Streamed texts: one message per token, and an empty message after the last.

Other answers are a single message. Both ends of the socket use the format of tokens that is defined
here.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

TOKEN = struct.Struct("<I")
END = b""


class Arrived(NamedTuple):
    """First tokens among new messages, and the texts that these complete, by the number of the
    request."""

    first: list[tuple[int, bytes]]
    whole: list[tuple[int, bytes]]


class ComingTexts:
    """Assembles texts from their tokens."""

    def __init__(self) -> None:
        self._texts: dict[int, list[bytes]] = defaultdict(list)

    def add(self, messages: Iterable[tuple[int, bytes]]) -> Arrived:
        """Add messages in the order in which they arrived."""
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

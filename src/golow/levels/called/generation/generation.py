"""Sizes of a compiled language model's texts."""

from __future__ import annotations

from typing import NamedTuple

from golow.records.errors import GolowError

FACTOR = 4  # between the numbers of tokens that plans take at once


class Generation(NamedTuple):
    """longest: tokens of a text at most, with those that it begins with. batch: texts side by side.
    chunk: new tokens that one plan takes at once, at most.

    Of an encoder-decoder model, longest counts the decoder's tokens. source: tokens that the
    encoder reads; 0 for features, whose size is the model's. start: tokens with which the decoder
    begins; by default its ``decoder_start_token_id``.
    """

    longest: int
    batch: int = 1
    chunk: int = 64
    source: int = 0
    start: tuple[int, ...] = ()

    def counts(self) -> tuple[int, ...]:
        """The numbers of new tokens for which there are plans: 1, 4, 16, ... up to a chunk. Raises
        `GolowError` for invalid settings."""
        for name, least in (("longest", 2), ("batch", 1), ("chunk", 1), ("source", 0)):
            given = getattr(self, name)
            if not isinstance(given, int) or isinstance(given, bool) or given < least:
                raise GolowError(
                    f"Generation has {name}={given!r}", f"give a whole number, {least} or more."
                )
        if not isinstance(self.start, tuple) or not all(type(token) is int for token in self.start):
            raise GolowError(f"Generation has start={self.start!r}", "give tokens: start=(1, 2).")
        found = [1]
        while found[-1] * FACTOR <= min(self.chunk, self.longest):
            found.append(found[-1] * FACTOR)
        return tuple(found)

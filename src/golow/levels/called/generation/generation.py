"""Sizes of a compiled language model's texts."""

from __future__ import annotations

from typing import NamedTuple

from golow.records.errors import GolowError

FACTOR = 4  # between the numbers of tokens that plans take at once


class Generation(NamedTuple):
    """longest: tokens of a text at most, with those that it begins with. batch: texts side by side.
    chunk: new tokens that one plan takes at once, at most."""

    longest: int
    batch: int = 1
    chunk: int = 64

    def counts(self) -> tuple[int, ...]:
        """The numbers of new tokens for which there are plans: 1, 4, 16, ... up to a chunk. Raises
        `GolowError` for invalid settings."""
        for name, least in (("longest", 2), ("batch", 1), ("chunk", 1)):
            given = getattr(self, name)
            if not isinstance(given, int) or isinstance(given, bool) or given < least:
                raise GolowError(
                    f"Generation has {name}={given!r}", f"give a whole number, {least} or more."
                )
        found = [1]
        while found[-1] * FACTOR <= min(self.chunk, self.longest):
            found.append(found[-1] * FACTOR)
        return tuple(found)

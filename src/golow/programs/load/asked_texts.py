"""Texts that a load test requests: prompts, and the number of tokens to generate for each."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

from golow.programs.load.load_record import TextPlan
from golow.records.record import Record, encode
from golow.storage.files import write_whole

FILE = "asked.json"
LEAST = 16  # prompts that differ
LENGTHS = 4  # of prompts; those of equal length form batches, and are replayed together


class AskedTexts(Record, frozen=True, kw_only=True):
    """prompts: tokens of each sample. tokens: how many are generated after each."""

    prompts: tuple[tuple[int, ...], ...]
    tokens: int

    def write(self, folder: Path) -> None:
        """Write them for the processes of the levels."""
        write_whole(folder / FILE, encode(self))

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of the prompts, ascending and without duplicates."""
        return tuple(sorted(set(map(len, self.prompts))))


def read(folder: Path) -> AskedTexts:
    """Read the texts that `write` wrote."""
    return msgspec.json.decode((folder / FILE).read_bytes(), type=AskedTexts)


def drawn(plan: TextPlan, vocabulary: int, most: int, seed: int) -> AskedTexts:
    """Draw prompts of a few lengths, from the shortest to the longest. most: texts in a batch."""
    draw = random.Random(seed)  # noqa: S311 - tokens, not secrets
    spaced = lengths(*plan.prompt)
    prompts = (
        tuple(draw.randrange(vocabulary) for _ in range(draw.choice(spaced)))
        for _ in range(max(LEAST, 2 * most))
    )
    return AskedTexts(prompts=tuple(prompts), tokens=plan.tokens)


def lengths(shortest: int, longest: int) -> list[int]:
    """Return evenly spaced lengths, including these two."""
    last = LENGTHS - 1
    return sorted({round(shortest + (longest - shortest) * n / last) for n in range(LENGTHS)})

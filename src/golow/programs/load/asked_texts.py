"""The texts that a load test asks for: prompts, and how many tokens follow each."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

from golow.programs.load.load_record import TextPlan
from golow.records.record import Record, encode
from golow.storage.files import write_whole

FILE = "asked.json"
LEAST = 16  # prompts that differ


class AskedTexts(Record, frozen=True, kw_only=True):
    """prompts: tokens of each sample. tokens: that are generated behind each."""

    prompts: tuple[tuple[int, ...], ...]
    tokens: int

    def write(self, folder: Path) -> None:
        """Write them for the processes of levels."""
        write_whole(folder / FILE, encode(self))

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths of prompts that occur, ascending."""
        return tuple(sorted(set(map(len, self.prompts))))


def read(folder: Path) -> AskedTexts:
    """Those that `write` wrote."""
    return msgspec.json.decode((folder / FILE).read_bytes(), type=AskedTexts)


def drawn(plan: TextPlan, vocabulary: int, most: int, seed: int) -> AskedTexts:
    """Draw prompts, each of a length evenly between the limits. most: texts in a batch."""
    draw = random.Random(seed)  # noqa: S311 - tokens, not secrets
    lengths = [draw.randint(*plan.prompt) for _ in range(max(LEAST, 2 * most))]
    prompts = tuple(tuple(draw.randrange(vocabulary) for _ in range(count)) for count in lengths)
    return AskedTexts(prompts=prompts, tokens=plan.tokens)

"""Tokens and draws that no level knows before they are needed."""

from __future__ import annotations

import random
import secrets

from golow.records.text import TextWorkload


class Drawn:
    """Draws prompts, forced texts and the numbers by which tokens are chosen, for one workload."""

    def __init__(self, workload: TextWorkload) -> None:
        self._workload = workload
        self._secret = random.Random(secrets.randbits(64))  # noqa: S311 - needs no strong generator
        self._choice = random.Random(workload.sampling.seed)  # noqa: S311

    def texts(self, count: int) -> list[list[int]]:
        """Tokens [batch][count]."""
        size = self._workload.vocabulary
        return [
            [self._secret.randrange(size) for _ in range(count)]
            for _ in range(self._workload.batch)
        ]

    def prompts(self) -> list[list[int]]:
        """Return the tokens of a prompt for each text, of that text's length."""
        whole = self.texts(self._workload.prompt)
        return [text[:count] for text, count in zip(whole, self._workload.prompts, strict=True)]

    def positions(self, first: int, last: int, count: int) -> list[int]:
        """Return this many positions from first to last, including both."""
        inner = range(first + 1, last)
        some = self._secret.sample(inner, min(max(0, count - 2), len(inner)))
        return sorted({first, last, *some})

    def choices(self) -> list[list[float]]:
        """The draws for the tokens of new texts, [count][batch]; none if sampling is greedy."""
        if self._workload.sampling.is_greedy:
            return []
        work = self._workload
        return [[self._choice.random() for _ in range(work.batch)] for _ in range(work.tokens)]

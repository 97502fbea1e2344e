"""Check of the generated tokens: the reference reads the level's own tokens, and each next token
must be its choice, or one that rounding explains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from golow.programs.generation.generation_record import Departure
from golow.worker.text_client import TextWorker

TOGETHER = 32  # texts in one request


class MadeTexts(NamedTuple):
    """Texts that a level generated in one request: prompts and tokens, [batch][count], and the
    draws by which they were chosen, [count][batch]."""

    prompt: Sequence[Sequence[int]]
    draws: Sequence[Sequence[float]]
    tokens: tuple[tuple[int, ...], ...]

    def each(self) -> Iterable[_Text]:
        """Every text with its own draws."""
        columns = list(zip(*self.draws, strict=True)) or [()] * len(self.tokens)
        for begin, made, drawn in zip(self.prompt, self.tokens, columns, strict=True):
            yield tuple(begin), tuple(made), tuple(drawn)


_Text = tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]


class Replays:
    """The errors that explain texts. Each text is computed once, because correct levels generate
    the same texts."""

    def __init__(self, reference: TextWorker) -> None:
        self._reference = reference
        self._known: dict[_Text, tuple[float, ...]] = {}

    def learn(self, made: Iterable[MadeTexts]) -> None:
        """Compute the errors of these texts with the reference."""
        new = dict.fromkeys(t for m in made for t in m.each() if t not in self._known)
        for part in _of_one_length(new):
            tokens = [(*prompt, *made) for prompt, made, _ in part]
            draws = list(zip(*(drawn for _, _, drawn in part), strict=True))
            errors = self._reference.replay(tokens, len(part[0][0]), draws)
            self._known |= dict(zip(part, errors, strict=True))

    def errors(self, made: MadeTexts) -> list[tuple[float, ...]]:
        """The error that explains each token, [batch][count]."""
        return [self._known[text] for text in made.each()]


def _of_one_length(texts: Iterable[_Text]) -> Iterator[list[_Text]]:
    """Yield the texts in groups with prompts of equal length."""
    ordered = sorted(texts, key=lambda text: len(text[0]))
    for _, alike in groupby(ordered, key=lambda text: len(text[0])):
        rest = list(alike)
        for begin in range(0, len(rest), TOGETHER):
            yield rest[begin : begin + TOGETHER]


def refuted(errors: Sequence[Sequence[float]], limit: float, what: str, first: int = 0) -> str:
    """Return why these tokens are not those of the model; empty if rounding explains them. first:
    the number of the first text."""
    for number, text in enumerate(errors, first):
        for token, error in enumerate(text):
            if not error <= limit:
                return (
                    f"token {token} of {what} {number} is not the model's: its logits would have "
                    f"to be off by {error:.2g}, and rounding explains {limit:.2g}"
                )
    return ""


def departure(own: MadeTexts, base: MadeTexts, replays: Replays, limit: float) -> Departure | None:
    """Where the first differing text departs from the baseline's; None if all agree."""
    pairs = zip(own.tokens, base.tokens, replays.errors(own), replays.errors(base), strict=True)
    for text, (tokens, others, errors, base_errors) in enumerate(pairs):
        for token, (made, other) in enumerate(zip(tokens, others, strict=True)):
            if made != other:
                error = max(errors[token], base_errors[token])
                return Departure(text=text, token=token, error=error, explained=error <= limit)
    return None

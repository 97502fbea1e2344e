"""Check of the generated tokens: the reference reads the level's own tokens, and each next token
must be its choice, or one that rounding explains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import sqrt
from typing import NamedTuple

from golow.programs.generation.error_limit import DRAWS, FURTHER_DRAWS, TIMES_RMS, ErrorLimit
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
_Errors = tuple[float, ...]


class Replays:
    """The errors that explain texts, and the errors that rounding explains. Each text is computed
    once, because correct levels generate the same texts.

    Where a token needs a larger error than the limit, the text is computed with the reference moved
    by roundings as well: on the way into a repetition a model may be far more sensitive than on the
    drawn tokens with which the limit was measured. If three such draws do not explain a token,
    its text gets nine more.
    """

    def __init__(self, reference: TextWorker, limit: ErrorLimit) -> None:
        self._reference, self._limit = reference, limit
        self._known: dict[_Text, _Errors] = {}
        self._limits: dict[_Text, _Errors] = {}  # of texts that the common limit refutes

    def learn(self, made: Iterable[MadeTexts]) -> None:
        """Compute the errors of these texts with the reference."""
        new = dict.fromkeys(t for m in made for t in m.each() if t not in self._known)
        self._known |= self._replayed(new)
        draws: list[dict[_Text, _Errors]] = []
        for seeds in (DRAWS, FURTHER_DRAWS):
            refuted = [text for text in new if not self._is_explained(text)]
            if not refuted:
                return
            draws += self._moved(refuted, seeds)
            for text in refuted:
                self._limits[text] = self._limits_of(text, [draw[text] for draw in draws])

    def _is_explained(self, text: _Text) -> bool:
        both = zip(self._known[text], self._limits_at(text), strict=True)
        return all(error <= limit for error, limit in both)

    def _limits_at(self, text: _Text) -> _Errors:
        return self._limits.get(text, (self._limit.everywhere,) * len(text[1]))

    def _moved(self, texts: list[_Text], seeds: Sequence[int]) -> list[dict[_Text, _Errors]]:
        """The errors by the reference moved by roundings, for each seed."""
        found = []
        for moved in self._limit.moves(seeds):
            self._reference.move(moved)
            found.append(self._replayed(texts))
        self._reference.move(None)
        return found

    def _limits_of(self, text: _Text, draws: Sequence[_Errors]) -> _Errors:
        """The error that rounding explains at each token of the text."""
        drawn = zip(*draws, strict=True)
        return tuple(
            max(self._limit.everywhere, TIMES_RMS * _distance(error, others))
            for error, others in zip(self._known[text], drawn, strict=True)
        )

    def errors(self, made: MadeTexts) -> list[tuple[float, ...]]:
        """The error that explains each token, [batch][count]."""
        return [self._known[text] for text in made.each()]

    def limits(self, made: MadeTexts) -> list[tuple[float, ...]]:
        """The error that rounding explains at each token, [batch][count]."""
        return [self._limits_at(text) for text in made.each()]

    def refuted(self, made: MadeTexts, what: str, first: int = 0) -> str:
        """Return why these tokens are not those of the model; empty if rounding explains them.
        first: the number of the first text."""
        rows = zip(self.errors(made), self.limits(made), strict=True)
        for number, (errors, limits) in enumerate(rows, first):
            for token, (error, limit) in enumerate(zip(errors, limits, strict=True)):
                if not error <= limit:
                    return (
                        f"token {token} of {what} {number} is not the model's: its logits would "
                        f"have to be off by {error:.2g}, and rounding explains {limit:.2g}"
                    )
        return ""

    def departure(self, own: MadeTexts, base: MadeTexts) -> Departure | None:
        """Where the first differing text departs from the baseline's; None if all agree."""
        both = zip(own.tokens, base.tokens, strict=True)
        for text, (tokens, others) in enumerate(both):
            for token, (made, other) in enumerate(zip(tokens, others, strict=True)):
                if made != other:
                    return self._departure(own, base, text, token)
        return None

    def _departure(self, own: MadeTexts, base: MadeTexts, text: int, token: int) -> Departure:
        found = [
            (self.errors(made)[text][token], self.limits(made)[text][token]) for made in (own, base)
        ]
        return Departure(
            text=text,
            token=token,
            error=max(error for error, _ in found),
            explained=all(error <= limit for error, limit in found),
        )

    def _replayed(self, texts: Iterable[_Text]) -> dict[_Text, _Errors]:
        found: dict[_Text, _Errors] = {}
        for part in _of_one_length(texts):
            tokens = [(*prompt, *made) for prompt, made, _ in part]
            draws = list(zip(*(drawn for _, _, drawn in part), strict=True))
            errors = self._reference.replay(tokens, len(part[0][0]), draws)
            found |= dict(zip(part, errors, strict=True))
        return found


def _distance(error: float, others: Sequence[float]) -> float:
    """The root mean square distance; 0 where nothing explains a token."""
    finite = [other - error for other in others if abs(other - error) < float("inf")]
    return sqrt(sum(step * step for step in finite) / len(finite)) if finite else 0.0


def _of_one_length(texts: Iterable[_Text]) -> Iterator[list[_Text]]:
    """Yield the texts in groups with prompts of equal length."""
    ordered = sorted(texts, key=lambda text: len(text[0]))
    for _, alike in groupby(ordered, key=lambda text: len(text[0])):
        rest = list(alike)
        for begin in range(0, len(rest), TOGETHER):
            yield rest[begin : begin + TOGETHER]

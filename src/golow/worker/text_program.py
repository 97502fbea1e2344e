"""Program that generates texts, as a worker serves it, and its answers. Imports no framework."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from golow.records.record import Record
from golow.worker.protocol import LoadReport

Tokens = Sequence[Sequence[int]]
"""Tokens of texts, [batch][count]."""

Draws = Sequence[Sequence[float]]
"""Numbers from 0 to 1 by which tokens are chosen, [count][batch]; empty if the likeliest are."""


class TextReport(Record, frozen=True, kw_only=True):
    """The answer to `text`.

    prefill_ns: nanoseconds from the prompt to its first token on the host. token_ns: of each later
    token. tokens: all that were generated, [batch][count].
    """

    prefill_ns: int
    token_ns: tuple[int, ...]
    tokens: tuple[tuple[int, ...], ...]


class ReplayReport(Record, frozen=True, kw_only=True):
    """The answer to `replay`: the least error of the logits that explains each token, [texts]
    [count]; 0 for the token that the reference chooses, None if nothing explains it."""

    errors: tuple[tuple[float | None, ...], ...]


class Moved(Record, frozen=True, kw_only=True):
    """How the reference is moved to find out what rounding does.

    share: of each weight, up or down by the seed. digits, least: of a grid to which operations
    round (`golow.levels.torch.rounded_operations.Grid`); 0 digits round nothing.
    """

    seed: int
    share: float
    digits: int = 0
    least: int = 0


@runtime_checkable
class GeneratingProgram(Protocol):
    """A program that generates texts."""

    def load(self, bundle: Path) -> LoadReport:
        """Build and load: everything that is not a text."""

    def prompt(self, tokens: Tokens, draws: Draws) -> None:
        """Take the beginning of the next texts, and the draws for their tokens; computes
        nothing."""

    def first(self) -> list[int]:
        """Compute the prompt and choose the first token of each text."""

    def following(self) -> list[int]:
        """Give the last tokens to the model and choose the next ones."""

    def force(self, tokens: Tokens, prompt: int, positions: Sequence[int], file: Path) -> None:
        """Give the model these tokens: the prompt at once, the others one by one. Writes the logits
        after each of these positions, ``output/POSITION`` [batch, vocabulary]."""


@runtime_checkable
class ReplayingProgram(Protocol):
    """The reference, which judges what others generated."""

    def replay(self, tokens: Tokens, prompt: int, draws: Draws) -> list[list[float]]:
        """The least errors that explain the tokens after the prompt; infinite if nothing does.
        draws: [count][texts]."""

    def move(self, moved: Moved | None) -> None:
        """Let the reference be moved from now on; None returns to the weights of the bundle."""

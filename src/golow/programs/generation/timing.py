"""The race of texts: levels generate in turn, round by round, from prompts that no level knew."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from golow.measure import words
from golow.measure.block import ON_CPU, Retries, clean_block
from golow.measure.race import CHECK_EVERY, LEAST_ROUNDS
from golow.measure.rounds import Race, StopReason
from golow.measure.two_clocks import AROUND_SECONDS, LEAST_SECONDS, LEAST_SHARE, REQUEST_SECONDS
from golow.observer import Observer
from golow.programs.generation.drawn_tokens import Drawn
from golow.programs.generation.replays import MadeTexts
from golow.records.comparison import Block, Sample
from golow.records.errors import WorkerFailure
from golow.worker.protocol import Challenge
from golow.worker.text_client import TextWorker

NECESSARY_FACTOR = 3
"""The rounds that a conclusion needs may take this many times the time limit together."""

CONTENDED_FACTOR = 4
"""The seconds that are allowed around a block's times, times this in a contended block."""


@dataclass
class Entrant:
    """A level in the race: the interface of `clean_block`, and all texts of the level."""

    worker: TextWorker
    tokens: int
    made: list[MadeTexts] = field(default_factory=list)
    coming: list[tuple[Sequence[Sequence[int]], Sequence[Sequence[float]]]] = field(
        default_factory=list
    )

    @property
    def name(self) -> str:
        """The level's name."""
        return self.worker.name

    def time(
        self,
        iterations: int,
        warmup: int,
        cold: bool = False,
        challenge: Challenge | None = None,
        within: float | None = None,
    ) -> Sample:
        """Generate from the next prompt."""
        prompt, draws = self.coming.pop(0)
        found = self.worker.text(prompt, self.tokens, draws)
        self.made.append(MadeTexts(prompt, draws, found.tokens))
        return found.sample


class Prompts:
    """The prompts of a round, the same for every level: one for each attempt."""

    def __init__(self, drawn: Drawn, attempts: int) -> None:
        self._drawn, self._attempts = drawn, attempts

    def of_a_round(self) -> list[tuple[list[list[int]], list[list[float]]]]:
        """Prompt and draws for each attempt."""
        return [(self._drawn.prompts(), self._drawn.choices()) for _ in range(self._attempts)]


def race_texts(
    entrants: Sequence[Entrant],
    prompts: Prompts,
    *,
    seed: int,
    time_limit: float,
    target: float,
    observer: Observer,
) -> Race:
    """Let the levels generate in turn until the time of a token is known within the target.

    Each block's first time is the time to the first token. The first entrant is the baseline. A
    KeyboardInterrupt ends the race with all complete rounds, and ``stopped_because`` states it.
    """
    started = time.monotonic()
    order = random.Random(seed)  # noqa: S311 - an order of rounds, not a secret
    race = Race(
        levels=tuple(entrant.name for entrant in entrants),
        baseline=entrants[0].name,
        seed=seed,
        target=target,
        least_rounds=LEAST_ROUNDS,
    )
    retries = Retries(time.monotonic, started, started + time_limit)
    reason: StopReason = "nothing to time"
    widest = float("inf")
    try:
        while racing := [entrant for entrant in entrants if entrant.name not in race.failures]:
            order.shuffle(racing)
            race = _round(race, racing, prompts, retries)
            rounds, seconds = len(race.rounds), time.monotonic() - started
            if rounds and rounds % CHECK_EVERY == 0:
                widest = decoding(race).widest_interval()
            observer.race(rounds, seconds, time_limit, widest)
            if widest < target and race.has_enough_rounds():
                reason = "interval"
                break
            if _is_over(rounds, seconds, time_limit):
                reason = "time limit"
                break
    except KeyboardInterrupt:
        reason = "interrupted"
    return replace(race, stopped_because=reason, seconds=time.monotonic() - started)


def decoding(race: Race) -> Race:
    """The race of the tokens after the first."""
    return _of_times(race, slice(1, None))


def prefilling(race: Race) -> Race:
    """The race up to the first token."""
    return _of_times(race, slice(0, 1))


def refute_clock(blocks: Sequence[Block]) -> str:
    """Why the times that a level reports cannot be true; empty if they can."""
    passed = reported = 0.0
    for block in blocks:
        factor = CONTENDED_FACTOR if block.contended else 1
        around = factor * (REQUEST_SECONDS + AROUND_SECONDS * len(block.host_ns))
        spent = (block.wall_ns or 0) / 1e9 - around
        if spent > 0:
            passed, reported = passed + spent, reported + sum(block.host_ns) / 1e9
    if passed < LEAST_SECONDS or reported >= LEAST_SHARE * passed:
        return ""
    return (
        f"the times that it reports are {reported / passed:.0%} of the time that passed, at least "
        f"{LEAST_SHARE:.0%} is expected: it works outside of its times, or its clock is wrong"
    )


def _round(race: Race, racing: Sequence[Entrant], prompts: Prompts, retries: Retries) -> Race:
    """The race with one more round."""
    number, failures = len(race.rounds), dict(race.failures)
    common = prompts.of_a_round()
    blocks: dict[str, Block] = {}
    for position, entrant in enumerate(racing):
        entrant.coming = list(common)
        try:
            block, _ = clean_block(entrant, entrant.tokens, retries, ON_CPU, number, position)
        except WorkerFailure as failure:
            failures[entrant.name] = failure
        else:
            blocks[entrant.name] = block
    rounds = (*race.rounds, blocks) if blocks else race.rounds
    return replace(race, rounds=rounds, failures=failures)


def _is_over(rounds: int, seconds: float, limit: float) -> bool:
    """True if the next round would probably end after the limit, or after that of the rounds that a
    conclusion needs."""
    coming = seconds * (rounds + 1) / max(1, rounds)
    return coming > (NECESSARY_FACTOR * limit if rounds < words.LEAST_ROUNDS else limit)


def _of_times(race: Race, part: slice) -> Race:
    rounds = tuple(
        {
            name: msgspec.structs.replace(block, host_ns=block.host_ns[part])
            for name, block in blocks.items()
        }
        for blocks in race.rounds
    )
    return replace(race, rounds=rounds)

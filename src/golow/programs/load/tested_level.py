"""A level during a load test: checked first, then tested while it is correct."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, Self

import msgspec

from golow.compiled.callable_levels import SESSIONS, is_direct, takes_any_size
from golow.observer import Observer
from golow.programs.load.level_under_load import LevelUnderLoad, Place, Run
from golow.programs.load.load_record import LevelLoad, LoadRun, Peak, Scenario
from golow.programs.load.service import NAME as SERVICE
from golow.records.comparison import Check
from golow.records.errors import Unsupported, WorkerFailure

FIRST_RATE = 100.0  # samples per second, expected before anything is known


class Judge(Protocol):
    """Checks answers."""

    def judge(self, answers: Sequence[tuple[int, bytes]]) -> Check:
        """The verdict on answers, by the index of their sample: none may be missing or wrong."""

    def judge_some(self, answers: Sequence[tuple[int, bytes]]) -> Check:
        """The verdict on these answers alone."""


class TestedLevel:
    """A level, its verdict and its runs; leaving the ``with`` block ends its process.

    throughput: samples per second of the offline scenario, as far as is known.
    """

    __test__ = False  # pytest takes the name for a test

    def __init__(self, name: str, place: Place, proof: Judge, contexts: int = 1) -> None:
        self._level, self._contexts, self.peak = name, contexts, None
        self._check = Check(verdict="failed", reason="the run ended before this level")
        self.name = LevelLoad(level=name, contexts=contexts, check=self._check).label
        self.throughput = FIRST_RATE
        self._place, self._proof = place, proof
        self._under: LevelUnderLoad | None = None
        self._built = False
        self._runs: list[LoadRun] = []
        self._ended: LevelUnderLoad | None = None
        self._log = ""

    peak: Peak | None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.end()

    @property
    def is_loaded(self) -> bool:
        """True while it is correct and its process runs."""
        return self._check.verdict == "match" and self._under is not None

    @property
    def has_energy(self) -> bool:
        """True if the energy of any run was measured."""
        return any(run.joules is not None for run in self._runs)

    def start(self) -> None:
        """Start its process, in a thread that lives as long as the level is tested: Linux ends a
        process with the thread that started it."""
        with self._recorded():
            self._under = LevelUnderLoad(self._level, self._place, self._contexts)

    def build(self) -> None:
        """Build it, once it was started. Other levels may be built meanwhile, in other threads."""
        if self._under is None:
            return
        with self._recorded():
            self._under.load()
            self._built = True

    def prove(self, place: str, observer: Observer) -> None:
        """Check all answers of LoadGen's accuracy mode in each scenario, if it was built. place:
        for the observer, such as ``2 of 5``."""
        if self._under is None or not self._built:
            self.end()
            return
        observer.stage(f"{self.name} ({place}): checking all answers")
        with self._recorded():
            scenarios: dict[Scenario, None] = dict.fromkeys(
                ("offline", *self._place.plan.scenarios)
            )
            for scenario in scenarios:
                asked = Run(scenario, self.throughput, accuracy=True)
                found, answers = self._under.run(asked)
                self._check = self._proof.judge(answers)
                if self._check.verdict != "match":
                    break
                if scenario == "offline":
                    self.throughput = found.throughput or FIRST_RATE
        if self._check.verdict != "match":
            self.end()

    def run(self, asked: Run) -> LoadRun | None:
        """Run LoadGen once, and keep the run; None if the level is no longer tested."""
        if self._under is None:
            return None
        found = LoadRun(scenario=asked.scenario, rate=asked.asked_rate, round=asked.round)
        try:
            found, answers = self._under.run(asked)
            wrong = self._proof.judge_some(answers)
            if wrong.verdict != "match":
                found = _failed(found, f"a wrong answer under load: {wrong.reason}")
        except WorkerFailure as failure:
            self._log = failure.log
            found = _failed(found, failure.message)
        self._runs.append(found)
        if found.outcome == "failed":
            self.end()
        elif asked.scenario == "offline":
            self.throughput = found.throughput or self.throughput
        return found

    def stop(self) -> None:
        """End `build`, which runs in another thread."""
        if self._under is not None:
            self._under.kill()

    def end(self) -> None:
        """End its process."""
        if self._under is not None:
            self._under.__exit__()
            self._under, self._ended = None, self._under

    def record(self) -> LevelLoad:
        """Its record so far."""
        under = self._under or self._ended
        return LevelLoad(
            level=self._level,
            contexts=self._contexts,
            check=self._check,
            runs=tuple(self._runs),
            peak=self.peak,
            cores=self._place.cores.level,
            build=under.build if under is not None else None,
            memory=under.memory() if under is not None else (),
            notes=tuple(self._notes()),
            log=self._log,
        )

    # ------------------------------------------------------------ implementation

    def _notes(self) -> Iterator[str]:
        base, plan = self._level.partition(":")[0], self._place.plan
        if base == SERVICE:
            yield (
                f"the service at {plan.url}, with a connection for each context; memory and cores "
                "are those of the process that sends requests to it"
            )
            return
        if plan.texts is not None:
            copies = len(plan.buckets) * self._contexts
            if copies > 1:
                yield f"built for each batch size and context: {copies} copies of the weights"
            return
        if is_direct(self._level) or takes_any_size(self._level):
            return
        sizes = len(plan.buckets) * max(1, len(plan.length_buckets))
        if base in SESSIONS and sizes > 1:
            yield f"compiled for each size: {sizes} copies of the weights"
        elif base not in SESSIONS and sizes * self._contexts > 1:
            copies = sizes * self._contexts
            yield f"compiled for each size and context: {copies} copies of the weights"

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Turn an error in the block into the level's verdict."""
        try:
            yield
        except Unsupported as error:
            self._check = Check(verdict="unavailable", reason=error.words)
        except WorkerFailure as failure:
            self._log = failure.log
            self._check = Check(verdict="failed", reason=failure.message)


def _failed(run: LoadRun, reason: str) -> LoadRun:
    return msgspec.structs.replace(run, outcome="failed", reason=reason)

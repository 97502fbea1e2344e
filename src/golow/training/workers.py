"""The two workers of a level, one that trains and one that infers, for one run after another.

A run begins with a state that `restore` takes, so they need not be started, and what they run need
not be made, for each run anew.
"""

from __future__ import annotations

from typing import Self

from golow.check.standard import Standard
from golow.comparison.entrant import Entrant, Observer
from golow.levels.ladder import Choice
from golow.worker.client import Worker
from golow.workload.bundle import Bundle


class Workers:
    """Both of one level; the entrant has the one that trains. They end with the block."""

    def __init__(self, entrant: Entrant, inference: Bundle, observer: Observer) -> None:
        self.entrant = entrant
        self._inference, self._observer = inference, observer
        self._evaluator: Worker | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def ready(self, standard: Standard | None, allow_differs: bool, place: str) -> bool:
        """Start the one that trains, unless both are there; says whether the level may train."""
        if self._live:
            return True
        self.close()
        return self.entrant.start(standard, allow_differs, self._observer, place)

    @property
    def trainer(self) -> Worker:
        """The level as it trains, once it is ready."""
        assert self.entrant.worker is not None  # noqa: S101
        return self.entrant.worker

    def evaluator(self) -> Worker:
        """The level as it infers: the same variant, or its plain form where that only trains."""
        if self._evaluator is None:
            level, variant = choice = self.entrant.choice
            if "infer" not in choice.modes:
                variant = ""
            name = Choice(level, variant).name
            self._observer.stage(f"{name}: starting the worker that evaluates")
            launch = level.prepare(self._inference, variant, self.entrant.cache)
            self._evaluator = self.entrant.starter.worker(name, launch, self._inference)
            self._evaluator.load(self._inference.folder)
        return self._evaluator

    def close(self) -> None:
        """End both; the next run begins with new ones."""
        self.entrant.close()
        if self._evaluator is not None:
            self._evaluator.close()
            self._evaluator = None

    @property
    def _live(self) -> bool:
        """Whether both are there. One that has ended by itself since the last run has no memory."""
        there = [worker for worker in (self.entrant.worker, self._evaluator) if worker is not None]
        return len(there) == 2 and all("resident" in worker.resident_bytes() for worker in there)

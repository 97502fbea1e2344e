"""The two workers of a level, one that trains and one that infers.

Both serve all runs of the level: a run begins with a state that `restore` loads, so nothing has to
be started or built again.
"""

from __future__ import annotations

from typing import Self

from golow.check.checked_level import CheckedLevel
from golow.check.reference import Standard
from golow.levels import ladder
from golow.worker.client import Worker
from golow.workload.bundle import Bundle


class Workers:
    """Both workers of a level; leaving the block ends them. inference: the evaluator's bundle."""

    def __init__(self, level: CheckedLevel, inference: Bundle) -> None:
        self.level = level
        self._inference = inference
        self._evaluator: Worker | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def ready(self, standard: Standard | None, allow_differs: bool, place: str) -> Worker | None:
        """The worker that trains, a new one unless both are alive; None if the level may not
        train."""
        if self._live:
            return self.trainer
        self.close()
        return self.level.start(standard, allow_differs, place)

    @property
    def trainer(self) -> Worker | None:
        """The worker that trains; None if there is none."""
        return self.level.worker

    def evaluator(self) -> Worker:
        """The worker that infers: the same variant, or the plain level if that only trains; eager
        for a level that only trains, such as ddp."""
        if self._evaluator is None:
            device, choice = self._inference.workload.device, self.level.choice
            if "infer" in choice.level.modes:
                chosen = choice.inferring(device)
            else:
                chosen = ladder.choose(ladder.BASELINE, "infer", device)
            self.level.observer.stage(f"{chosen.name}: starting the worker that evaluates")
            launch = chosen.prepare(self._inference, self.level.cache)
            self._evaluator = self.level.starter.worker(chosen.name, launch, self._inference)
            self._evaluator.load(self._inference.folder)
        return self._evaluator

    def close(self) -> None:
        """End both workers; the next run starts new ones."""
        self.level.close()
        if self._evaluator is not None:
            self._evaluator.close()
            self._evaluator = None

    @property
    def _live(self) -> bool:
        """True if both are alive. One that has ended since the last run reports no memory."""
        there = [worker for worker in (self.trainer, self._evaluator) if worker is not None]
        return len(there) == 2 and all("resident" in worker.resident_bytes() for worker in there)

"""How the workers of a comparison or a training are started: all under the same settings, and where
several comparisons share a card before they are needed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from golow.levels.ladder import Choice, Launch
from golow.levels.level import python_worker
from golow.record import Mode
from golow.worker.client import Worker
from golow.worker.limits import Limits
from golow.worker.turn import Turn
from golow.workload.bundle import Bundle


class Starter:
    """Starts workers; those that were started ahead and not asked for end with the block.

    limits: how long they may take to answer. turn: where several comparisons share a card, this
    one's place among them.
    """

    def __init__(self, limits: Limits | None = None, turn: Turn | None = None) -> None:
        self.limits, self.turn = limits or Limits(), turn or Turn()
        self._ahead: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for worker in self._ahead:
            worker.close()

    def ahead(self, choices: Iterable[Choice], mode: Mode, threads: int) -> None:
        """Start the workers of those that need nothing built, where comparisons share a card.

        What counts there is how many comparisons come by, and much of each is imports, which keep
        one core busy. Elsewhere nothing is started: it would disturb what a start costs.
        """
        if not self.turn.is_shared:
            return
        for choice in choices:
            if choice.level.served_by:
                launch = Launch(python_worker(choice.level.served_by, choice.variant))
                self._ahead.append(self._start(choice.name, launch, mode, threads))

    def worker(self, name: str, launch: Launch, bundle: Bundle) -> Worker:
        """A level's worker: one that was started ahead, or a new one."""
        for worker in self._ahead:
            if worker.name == name:
                self._ahead.remove(worker)
                return worker
        return self._start(name, launch, bundle.workload.mode, bundle.workload.threads)

    def _start(self, name: str, launch: Launch, mode: Mode, threads: int) -> Worker:
        worker = Worker(
            name,
            launch.command,
            threads=threads,
            environment=launch.environment,
            limits=self.limits,
            turn=self.turn,
        )
        if self.turn.is_shared:
            worker.wake(mode)
        return worker

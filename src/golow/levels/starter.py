"""Starts the workers of a comparison or a training, all with the same settings. If several
comparisons share a GPU, it starts workers before they are needed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from golow.levels.ladder import ChosenLevel, Launch
from golow.levels.level import python_worker
from golow.records.workload import Mode
from golow.worker.client import Worker
from golow.worker.time_limits import Limits
from golow.worker.turn import Turn
from golow.workload.bundle import Bundle


class Starter:
    """Starts workers; leaving the ``with`` block ends those started ahead and not used.

    limits: how long workers may take to answer. turn: this comparison's place among those that
    share a GPU.
    """

    def __init__(self, limits: Limits | None = None, turn: Turn | None = None) -> None:
        self.limits, self.turn = limits or Limits(), turn or Turn()
        self._ahead: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for worker in self._ahead:
            worker.close()

    def ahead(self, choices: Iterable[ChosenLevel], mode: Mode, threads: int) -> None:
        """If comparisons share a GPU, start the workers of levels that need no build.

        Throughput matters then, and much of each comparison is imports, which keep one core busy.
        Otherwise nothing is started ahead: it would distort the measured cost of a start.
        """
        if not self.turn.is_shared:
            return
        for choice in choices:
            if choice.level.served_by:
                command = python_worker(choice.level.served_by, choice.variant)
                launch = choice.chosen(Launch(command))
                self._ahead.append(self._start(choice.name, launch, mode, threads))

    def worker(self, name: str, launch: Launch, bundle: Bundle) -> Worker:
        """A level's worker: the one started ahead, or a new one."""
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
            choices=launch.choices,
        )
        if self.turn.is_shared:
            worker.wake(mode)
        return worker

"""Starts the workers of a comparison or a training run, all with the same settings; some of them
before they are needed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Self

from golow.levels.early_workers import EarlyWorkers
from golow.levels.ladder import ChosenLevel, Launch
from golow.levels.level import python_worker
from golow.records.workload import Device, Mode
from golow.worker.client import Worker
from golow.worker.ranked_client import RankedWorker
from golow.worker.time_limits import Limits
from golow.worker.turn import Turn
from golow.workload.bundle import Bundle


class Starter:
    """Starts workers; leaving the ``with`` block ends those started ahead and not used.

    limits: how long workers may take to answer. turn: this comparison's place among those that
    share a GPU. ranks: processes of each level that trains in several.
    """

    def __init__(
        self, limits: Limits | None = None, turn: Turn | None = None, ranks: int = 1
    ) -> None:
        self.limits, self.turn, self.ranks = limits or Limits(), turn or Turn(), ranks
        self._ahead: list[Worker] = []
        self._early: EarlyWorkers | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for worker in self._ahead:
            worker.close()
        if self._early is not None:
            self._early.close()

    def ahead(
        self, choices: Iterable[ChosenLevel], mode: Mode, threads: int, device: Device = "cpu"
    ) -> None:
        """Start the workers of levels that need no build: most of a start is imports, which keep
        one core busy.

        If comparisons share a GPU, throughput matters, and all start at once. On a CPU with more
        cores than one, they start one after another. Nothing starts ahead on a GPU that is not
        shared: it would distort what is measured of a start and of memory there.
        """
        served = [choice for choice in choices if choice.level.served_by]
        start = partial(self._started_ahead, mode=mode, threads=threads)
        if self.turn.is_shared:
            self._ahead += map(start, served)
        elif device == "cpu" and len(os.sched_getaffinity(0)) > 1:
            self._early = EarlyWorkers(start, served)

    def paused(self) -> AbstractContextManager[None]:
        """Meanwhile no worker imports that was started ahead: something is timed."""
        return nullcontext() if self._early is None else self._early.paused()

    def worker(self, name: str, launch: Launch, bundle: Bundle) -> Worker:
        """A level's worker: the one started ahead, or a new one."""
        if self._early is not None and (found := self._early.take(name)) is not None:
            return found
        for worker in self._ahead:
            if worker.name == name:
                self._ahead.remove(worker)
                return worker
        return self._start(name, launch, bundle.workload.mode, bundle.workload.threads)

    def _started_ahead(self, choice: ChosenLevel, mode: Mode, threads: int) -> Worker:
        command = python_worker(choice.level.served_by, choice.variant)
        worker = self._start(choice.name, choice.chosen(Launch(command)), mode, threads)
        if not worker.waiting:
            worker.wake(mode)
        return worker

    def _start(self, name: str, launch: Launch, mode: Mode, threads: int) -> Worker:
        if launch.ranked and self.ranks > 1 and mode == "train":
            return RankedWorker(
                name,
                launch.command,
                ranks=self.ranks,
                threads=threads,
                environment=launch.environment,
                limits=self.limits,
                choices=launch.choices,
            )
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

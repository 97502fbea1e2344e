"""Workers that stay. Importing torch takes most of a small check: a worker that is closed waits
here for the next one that is started alike, which gets the same process and loads it anew.

For tests of what a worker computes. A test of its process starts one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from golow.levels.ladder import Launch
from golow.levels.starter import Starter
from golow.programs.comparison import compare
from golow.worker.client import Worker
from golow.worker.time_limits import Limits
from golow.worker.turn import Turn
from golow.workload.bundle import Bundle


class KeptWorker(Worker):
    """A worker whose process goes on when it is closed."""

    is_free = False

    def dismiss(self) -> None:
        """Nothing yet: it may be asked again."""

    def close(self) -> None:
        """Let the next one have the process, if it lives and owes no answer."""
        self.is_free = not (self._ended or self.waiting)
        if not self.is_free:
            super().close()

    def end_process(self) -> None:
        """End the process at once; how it ends proves nothing here."""
        self._kill()
        super().close()


class KeptWorkers:
    """`starter` takes the place of `Starter`; what is started through it is shared."""

    def __init__(self) -> None:
        self._workers: list[tuple[object, KeptWorker]] = []

    def starter(
        self, limits: Limits | None = None, turn: Turn | None = None, ranks: int = 1
    ) -> Starter:
        """A starter of these workers."""
        return _KeptStarter(self, limits, turn, ranks)

    def worker(self, starter: Starter, name: str, launch: Launch, threads: int) -> Worker:
        """A free worker of that kind, or a new one."""
        kind = (launch.command, launch.environment, launch.choices, threads, starter.limits)
        for other, worker in self._workers:
            if other == kind and worker.is_free:
                worker.is_free, worker.name = False, name
                return worker
        worker = KeptWorker(
            name,
            launch.command,
            threads=threads,
            environment=launch.environment,
            limits=starter.limits,
            choices=launch.choices,
        )
        self._workers.append((kind, worker))
        return worker

    def end(self) -> None:
        """End all processes."""
        for _, worker in self._workers:
            worker.end_process()


class _KeptStarter(Starter):
    def __init__(
        self, kept: KeptWorkers, limits: Limits | None, turn: Turn | None, ranks: int
    ) -> None:
        super().__init__(limits, turn, ranks)
        self._kept = kept

    def ahead(self, *given: object) -> None:
        """None: those that are kept started long before."""

    def worker(self, name: str, launch: Launch, bundle: Bundle) -> Worker:
        return self._kept.worker(self, name, launch, bundle.workload.threads)


@contextmanager
def kept_workers() -> Iterator[KeptWorkers]:
    """Leaving the ``with`` block ends all of them."""
    kept = KeptWorkers()
    try:
        yield kept
    finally:
        kept.end()


@contextmanager
def kept_in_comparisons() -> Iterator[None]:
    """Comparisons within the ``with`` block share their workers."""
    with kept_workers() as kept, pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "Starter", kept.starter)
        yield

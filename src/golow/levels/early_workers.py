"""Workers that start before they are needed, one after another, while the command itself imports
PyTorch and prepares the workload."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from golow.levels.ladder import ChosenLevel
from golow.records.errors import WorkerFailure
from golow.worker.client import Worker

MOST = 2
"""Workers that wait at one time: each holds the memory of its imports."""
LOOK_SECONDS = 0.05  # between looks whether an importing worker was taken


class EarlyWorkers:
    """Starts a worker, waits until it has imported what it needs, then starts the next.

    One imports at a time, so that what a start takes is measured beside one busy core, that of the
    command. start: starts a level's worker and asks it to import. `close` ends unused ones, and
    only then the thread: Linux ends a worker with the thread that started it.
    """

    def __init__(
        self, start: Callable[[ChosenLevel], Worker], choices: Iterable[ChosenLevel]
    ) -> None:
        self._start, self._waiting = start, deque(choices)
        self._ready: list[Worker] = []
        self._changed, self._core = threading.Condition(), threading.RLock()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="early workers", daemon=True)
        self._thread.start()

    def take(self, name: str) -> Worker | None:
        """The level's worker, which may still import; None if it was not started, and it will not
        be."""
        with self._changed:
            self._waiting = deque(item for item in self._waiting if item.name != name)
            found = next((worker for worker in self._ready if worker.name == name), None)
            if found is not None:
                self._ready.remove(found)
            self._changed.notify()
            return found

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let none import meanwhile; first wait for the one that does. The same thread may pause
        again: after a race that had to leave eager, eager is started again."""
        with self._core:
            yield

    def close(self) -> None:
        """End the workers that were not taken."""
        with self._changed:
            self._over = True
            for worker in self._ready:
                worker.close()
            self._ready.clear()
            self._changed.notify()
        self._thread.join()

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        while self._is_next():
            with self._core:
                worker = self._begun()
                while worker in self._ready and not worker.has_answered(LOOK_SECONDS):
                    pass

    def _is_next(self) -> bool:
        """Wait until another worker may start; False when there will be none."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._over or (self._waiting and len(self._ready) < MOST)
            )
            return not self._over

    def _begun(self) -> Worker | None:
        with self._changed:
            if self._over or not self._waiting:
                return None
            try:
                worker = self._start(self._waiting.popleft())
            except WorkerFailure:
                return None  # whoever needs it starts it again, and reports what is wrong
            self._ready.append(worker)
            return worker

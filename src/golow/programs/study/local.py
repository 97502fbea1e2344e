"""Measures cells on this machine, each in its own process, one per place.

Places on one GPU share its memory: a cell starts only if its memory fits next to that of the
others. With each cell at such a place, the process of the next one is started too, so that its
imports are done when its turn comes.
"""

from __future__ import annotations

import selectors
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from golow.programs.study.attempt import PROGRAM, Attempt
from golow.programs.study.forecast import Devices
from golow.programs.study.lock import DeviceLock
from golow.programs.study.loop import Finished
from golow.programs.study.observer import StudyObserver
from golow.programs.study.places import Place
from golow.programs.study.study_record import Cell
from golow.records.comparison import Environment

# Seconds between checks whether another study has released a device.
PATIENCE = 0.5


class LocalExecutor:
    """Measures cells at places of this machine; there is at least one.

    name: of the study, shown to others that wait for its devices. drafts: creates a folder for a
    cell. cell_seconds: time limit of a cell. program: what Python runs for it.
    """

    def __init__(
        self,
        places: Sequence[Place],
        name: str,
        cache: Path,
        drafts: Callable[[], Path],
        cell_seconds: float,
        observer: StudyObserver,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self.environment: Environment = places[0].environment
        self.memory_bytes = places[0].memory_bytes
        self.shared_devices = _shared_devices(places)
        self._places, self._name, self._drafts = places, name, drafts
        self._seconds, self._observer, self._program = cell_seconds, observer, program
        names = {name for place in places for name in place.locks}
        self._locks = {name: DeviceLock(name, cache) for name in sorted(names)}
        self._attempts: list[Attempt] = []
        self._ahead: list[Attempt] = []  # processes that wait for their cell
        self._told = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for attempt in (*self._attempts, *self._ahead):
            attempt.end()
        for attempt in self._ahead:
            shutil.rmtree(attempt.draft, ignore_errors=True)
        for lock in self._locks.values():
            lock.release()

    @property
    def at_a_time(self) -> int:
        """How many cells can be measured at the same time."""
        return len(self._places)

    def has_room(self, needs: int | None) -> bool:
        """True if a place is free for a cell and no other study holds its device. needs: bytes, or
        None for a whole device."""
        return self._free_place(needs) is not None

    def start(self, cell: Cell, needs: int | None, more: float = 0.0) -> None:
        """Start to measure the cell at a free place."""
        place = self._free_place(needs)
        if place is None:
            raise ValueError("no place is free: call has_room first")
        attempt = self._waiting_at(place) or self._process(place)
        attempt.begin(cell, self._seconds + more, needs)
        for other in self._beside(place):
            attempt.in_company = other.in_company = True
        self._attempts.append(attempt)
        if place.shares_its_card:
            self._ahead.append(self._process(place))

    def wait(self) -> list[Finished]:
        """Block until a cell ends, reports a stage or exceeds its time; returns those that ended.
        If another study holds a device, returns after a while, so that it is checked again."""
        idle = len(self._attempts) < len(self._places)
        waiting = idle and not all(lock.held for lock in self._locks.values())
        if not self._attempts:
            time.sleep(PATIENCE if waiting else 0)
            return []
        limits = [attempt.deadline - time.monotonic() for attempt in self._attempts]
        limits += [attempt.look_again for attempt in self._attempts]
        self._listen(min([*limits, PATIENCE] if waiting else limits))
        return [self._finished(attempt) for attempt in list(self._attempts) if attempt.is_over()]

    # ------------------------------------------------------------ how it is done

    def _process(self, place: Place) -> Attempt:
        return Attempt(place, self._drafts(), self._program)

    def _waiting_at(self, place: Place) -> Attempt | None:
        """The process that was started there in advance, if there is one."""
        for attempt in self._ahead:
            if attempt.place is place:
                self._ahead.remove(attempt)
                return attempt
        return None

    def _free_place(self, needs: int | None) -> Place | None:
        taken = {id(attempt.place) for attempt in self._attempts}
        free = (place for place in self._places if id(place) not in taken)
        return next(
            (place for place in free if self._fits(needs, place) and self._may_use(place)), None
        )

    def _beside(self, place: Place) -> list[Attempt]:
        return [attempt for attempt in self._attempts if attempt.place.locks == place.locks]

    def _fits(self, needs: int | None, place: Place) -> bool:
        """True if the device has that much memory left; shares of the cores have their own."""
        held = [attempt.needs for attempt in self._beside(place)]
        known = [size for size in held if size is not None]
        if not held:
            return True
        if needs is None or len(known) < len(held):
            return False
        if not place.machine.uuid:
            return True
        return place.memory_bytes is not None and sum(known) + needs <= place.memory_bytes

    def _may_use(self, place: Place) -> bool:
        """Take the locks of all devices of the place, or none of them."""
        with ExitStack() as taken:
            for lock in (self._locks[name] for name in place.locks):
                if lock.held:
                    continue
                if not lock.acquire(self._name):
                    self._wait_for(lock.holder(), place)
                    return False
                taken.enter_context(lock)
            taken.pop_all()
        return True

    def _wait_for(self, holder: str, place: Place) -> None:
        if holder != self._told:
            self._observer.waiting(place.machine.device, holder)
            self._told = holder

    def _listen(self, seconds: float) -> None:
        """Block until a process writes or ends; report what they write as stages."""
        with selectors.DefaultSelector() as selector:
            for attempt in self._attempts:
                for descriptor in attempt.descriptors():
                    selector.register(descriptor, selectors.EVENT_READ, attempt)
            ready = selector.select(max(0.0, seconds))
        for attempt in {chosen.data for chosen, _ in ready}:
            for text in attempt.stages():
                self._observer.stage(attempt.cell, text)

    def _finished(self, attempt: Attempt) -> Finished:
        self._attempts.remove(attempt)
        brought = attempt.finish()
        return Finished(
            attempt.cell, brought, attempt.draft, attempt.place.environment, attempt.in_company
        )


def _shared_devices(places: Sequence[Place]) -> Devices | None:
    cards = {place.machine.uuid for place in places if place.shares_its_card}
    memory_bytes = places[0].memory_bytes
    return Devices(len(cards), memory_bytes) if cards and memory_bytes else None

"""The loop of a study: measure the remaining cells, in order, until none is left or time is up.

It only knows cells and records. An `Executor` decides where and how a cell is measured: on this
machine (`golow.programs.study.local`) or on a Ray cluster (`golow.programs.study.cluster`).
"""

from __future__ import annotations

import shutil
import time
from collections import Counter, deque
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from golow.programs.comparison.store import timed
from golow.programs.study.attempt import Lost
from golow.programs.study.cells import key
from golow.programs.study.forecast import Devices, Outlook, outlook
from golow.programs.study.memory import held_bytes, limit_bytes, too_early, too_large
from golow.programs.study.observer import StudyObserver
from golow.programs.study.refining import is_better, with_more_time
from golow.programs.study.store import StudyFolder
from golow.programs.study.study_record import FORMAT_VERSION, Cell, CellRecord, CellState, Study
from golow.records.comparison import Environment

# A cell whose process is ended from outside is tried again, up to this many attempts in one run.
MOST_ATTEMPTS = 3


class Finished(NamedTuple):
    """A finished attempt: its result, its folder, where it was measured, and whether another cell
    used the device at the same time."""

    cell: Cell
    brought: CellRecord | Lost
    draft: Path
    environment: Environment
    in_company: bool = False


class Executor(Protocol):
    """Where cells are measured, several at a time if there is room.

    environment and memory_bytes: of each place; all are alike. shared_devices: those whose memory
    the places share, None if each place has its own.
    """

    environment: Environment
    memory_bytes: int | None
    shared_devices: Devices | None

    @property
    def at_a_time(self) -> int:
        """How many cells can be measured at the same time."""

    def has_room(self, needs: int | None) -> bool:
        """True if a cell may start now. needs: bytes that it will hold on a device; None if it
        needs a whole device."""

    def start(self, cell: Cell, needs: int | None, more: float = 0.0) -> None:
        """Start to measure the cell. more: seconds by which it may exceed the limit of a cell."""

    def wait(self) -> Sequence[Finished]:
        """Block until something happens; returns the finished attempts, if any."""


class StudyRun:
    """One run of a study, in the environment of its executor.

    asked: every cell, in order. skip: skip cells that are certain to need too much memory; those
    that an earlier run skipped are decided again. If false, every cell is measured. refine: at the
    end, measure cells with too few rounds again, with more time (`golow.programs.study.refining`).
    """

    def __init__(
        self,
        study: Study,
        asked: Sequence[Cell],
        folder: StudyFolder,
        executor: Executor,
        observer: StudyObserver,
        skip: bool = True,
        refine: bool = False,
    ) -> None:
        self.study, self.folder, self.executor = study, folder, executor
        self.environment = folder.environment(executor.environment, study.device)
        self._observer, self._skip, self._asked = observer, skip, asked
        self._allowed = limit_bytes(study.limits.memory, executor.memory_bytes)
        self._attempts: Counter[str] = Counter()
        self._alone: set[str] = set()  # cells that ran out of memory while others used the device
        there = folder.records(self.environment)
        self._records = {
            name: there[name]
            for name in map(key, asked)
            if name in there and there[name].state != "skipped"
        }
        for name in map(key, asked):
            if name in there and self._why_skipped(there[name].cell):
                self._records.setdefault(name, there[name])
        self._waiting = deque(cell for cell in asked if key(cell) not in self._records)
        self._running: list[Cell] = []
        # Records with too few rounds, by the key of the cell that is measured instead.
        self._unclear: dict[str, CellRecord] = {}
        for record in self._records.values() if refine else ():
            if record.state == "unclear":
                longer = with_more_time(record, folder.timed(record))
                self._unclear[key(longer)] = record
                self._waiting.append(longer)

    def run(self, seconds: float | None = None) -> None:
        """Measure until nothing is left. seconds: after this time no further cell starts."""
        self._observer.outlook(self._outlook())
        deadline = None if seconds is None else time.monotonic() + seconds
        while self._may_begin(deadline) or self._running:
            while self._may_begin(deadline) and self._begin_next():
                pass
            if self._waiting or self._running:
                for finished in self.executor.wait():
                    self._take(finished)

    # ------------------------------------------------------------ how it is done

    def _may_begin(self, deadline: float | None) -> bool:
        return bool(self._waiting) and (deadline is None or time.monotonic() < deadline)

    def _begin_next(self) -> bool:
        """Start the first cell for which there is room; returns whether one started. Cells that
        need not wait overtake a cell that waits for room."""
        if not self.executor.has_room(0):
            return False
        to_come = (*self._waiting, *self._running)
        for cell in self._waiting:
            if self._skip and too_early(cell, self._records.values(), to_come, self._allowed):
                continue
            alone = key(cell) in self._alone
            needs = None if alone else held_bytes(cell, self._records.values())
            if self.executor.has_room(needs):
                self._waiting.remove(cell)
                self._begin(cell, needs)
                return True
        return False

    def _begin(self, cell: Cell, needs: int | None) -> None:
        is_again = key(cell) in self._unclear
        if not is_again and (reason := self._why_skipped(cell)):
            self._keep(_unmeasured(cell, "skipped", reason), self.folder.draft(), self.environment)
        else:
            self._running.append(cell)
            self.executor.start(cell, needs, cell.seconds - self.study.limits.seconds)
            self._observer.began(self._as_asked(cell))

    def _why_skipped(self, cell: Cell) -> str:
        known = (record for record in self._records.values() if record.state != "skipped")
        return too_large(cell, known, self._allowed) if self._skip else ""

    def _take(self, finished: Finished) -> None:
        cell, brought = finished.cell, finished.brought
        self._running.remove(cell)
        if isinstance(brought, Lost):
            self._attempts[key(cell)] += 1
            if self._attempts[key(cell)] < MOST_ATTEMPTS:
                return self._again(finished, brought.reason)
            brought = _unmeasured(cell, "failed", f"{brought.reason}, {MOST_ATTEMPTS} times")
        elif brought.out_of_memory and finished.in_company:
            self._alone.add(key(cell))
            return self._again(finished, "memory ran out while other cells used the device")
        name = self.folder.environment(finished.environment, self.study.device)
        if key(cell) in self._unclear:
            return self._keep_if_better(brought, finished.draft, name)
        return self._keep(brought, finished.draft, name)

    def _again(self, finished: Finished, reason: str) -> None:
        """Measure the cell again, before all others."""
        self._waiting.appendleft(finished.cell)
        shutil.rmtree(finished.draft, ignore_errors=True)
        self._observer.lost(self._as_asked(finished.cell), reason)

    def _as_asked(self, cell: Cell) -> Cell:
        """The study's cell, also if it is measured with more time."""
        record = self._unclear.get(key(cell))
        return cell if record is None else record.cell

    def _keep_if_better(self, brought: CellRecord, draft: Path, environment: str) -> None:
        """Keep what a longer race brought, or else what was there."""
        asked = self._unclear[brought.key]
        there = self.folder.records(environment).get(asked.key)
        record = msgspec.structs.replace(brought, key=asked.key, cell=asked.cell)
        if there is None or not there.is_measured:
            return self._keep(record, draft, environment)
        before = self.folder.timed(there)
        if record.is_measured and is_better(timed(draft / record.comparison), before):
            return self._keep(record, draft, environment)
        shutil.rmtree(draft, ignore_errors=True)
        reason = f"the earlier record is kept: {record.reason or 'no more rounds in a longer race'}"
        ended = msgspec.structs.replace(there, reason=reason, seconds=record.seconds)
        return self._observer.ended(ended, self._outlook())

    def _keep(self, record: CellRecord, draft: Path, environment: str) -> None:
        record = msgspec.structs.replace(record, environment=environment)
        record = self.folder.keep(record, draft)
        if environment == self.environment:  # else a node of another kind measured it
            self._records[record.key] = record
        self._observer.ended(record, self._outlook())

    def _outlook(self) -> Outlook:
        return outlook(
            len(self._asked),
            [*self._waiting, *self._running],
            self._records.values(),
            self.study.limits,
            self._allowed,
            self.executor.at_a_time,
            self.executor.shared_devices,
        )


def _unmeasured(cell: Cell, state: CellState, reason: str) -> CellRecord:
    return CellRecord(
        format_version=FORMAT_VERSION,
        key=key(cell),
        cell=cell,
        state=state,
        reason=reason,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )

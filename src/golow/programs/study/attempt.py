"""One attempt at a cell: a separate process, awaited without spinning, ended with all it started.

Whatever the process does, the study continues: the process ends by itself, by a signal, or when its
time is up. The result of an attempt is a `CellRecord` and a folder, or `Lost`.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from golow.programs.study.cell import DISK_FULL, Outcome
from golow.programs.study.cells import key
from golow.programs.study.family import MARK, end_family
from golow.programs.study.places import Place
from golow.programs.study.study_record import FORMAT_VERSION, OUT_OF_MEMORY, Cell, CellRecord
from golow.records.errors import GolowError
from golow.records.record import encode
from golow.storage.files import write_whole
from golow.worker.dead_worker import out_of_memory_kills
from golow.worker.process import pipes
from golow.workload.import_path import module_command, python_environment

PROGRAM = module_command("golow.programs.study.cell")[1:]
"""Arguments with which Python runs a cell; tests replace them."""

LOG_BYTES = 4096
PATIENCE = 10.0  # seconds for a process that is told to end to end its workers first

# Signals from outside: an error in a program does not raise them.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Lost(NamedTuple):
    """An attempt without a result: its process was ended from outside."""

    reason: str


class Attempt:
    """The process that measures one cell at one place, in the folder ``draft``; it waits for
    `begin`.

    program: what Python runs, followed by the folder; `golow.programs.study.cell` states what a
    program must do. in_company: whether another cell has used the device meanwhile; the executor
    sets it.
    """

    cell: Cell
    needs: int | None

    def __init__(self, place: Place, draft: Path, program: Sequence[str]) -> None:
        self.place, self.draft = place, draft
        self.in_company = False
        self.deadline = math.inf
        self._kills = out_of_memory_kills()
        self._text = b""
        try:
            (draft / "scratch").mkdir()
            self._log = (draft / "log").open("w+b")
            self._process = subprocess.Popen(
                [sys.executable, *program, str(draft)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=self._environment(),
                start_new_session=True,  # Ctrl-C reaches the study alone, which then ends the cell
            )
        except OSError as error:
            raise _not_started(draft, error) from error
        self._stdin, stdout = pipes(self._process)
        self._output: int | None = stdout.fileno()
        os.set_blocking(stdout.fileno(), False)
        self._end_of_process = _end_of(self._process)
        with suppress(OSError):  # it may have ended
            os.sched_setaffinity(self._process.pid, place.environment.affinity)

    def begin(self, cell: Cell, seconds: float, needs: int | None) -> None:
        """Have the process measure the cell. seconds: how long it may take. needs: bytes of the
        device that it is expected to hold; None if it needs the whole device."""
        self.cell, self.needs, self._limit = cell, needs, seconds
        self._began = time.monotonic()
        self.deadline = self._began + seconds
        self._created = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            write_whole(self.draft / "request.json", encode(cell))
        except OSError as error:
            raise _not_started(self.draft, error) from error
        with suppress(BrokenPipeError):  # it has died: `finish` reports how
            os.write(self._stdin.fileno(), b"\n")

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def descriptors(self) -> list[int]:
        """Descriptors that become readable when the process writes or ends."""
        return [fd for fd in (self._end_of_process, self._output) if fd is not None]

    @property
    def look_again(self) -> float:
        """Seconds after which to check whether it has ended; infinite if a descriptor tells."""
        return 1.0 if self._end_of_process is None else math.inf

    def is_over(self) -> bool:
        """True if the process has ended or has used up its time."""
        return self._process.poll() is not None or time.monotonic() >= self.deadline

    def stages(self) -> list[str]:
        """The lines that it has written since the last call."""
        if self._output is not None:
            with suppress(BlockingIOError):
                data = os.read(self._output, 1 << 16)
                self._text += data
                self._output = self._output if data else None  # it may close its output and live on
        *lines, self._text = self._text.split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def finish(self) -> CellRecord | Lost:
        """The result of the cell, whose process has ended or has used up its time. The record has
        no environment yet. Removes everything from the draft except the comparison.

        Raises `GolowError` if the disk is full.
        """
        seconds = time.monotonic() - self._began
        outcome = self._brought()
        log = self._end_of_log()
        self._tidy("" if isinstance(outcome, Lost) else outcome.comparison)
        if isinstance(outcome, Lost):
            return outcome
        return CellRecord(
            format_version=FORMAT_VERSION,
            key=key(self.cell),
            cell=self.cell,
            state="done" if outcome.comparison else "failed",
            reason=outcome.reason,
            created=self._created,
            seconds=seconds,
            machine=self.place.machine,
            comparison=outcome.comparison,
            out_of_memory=outcome.out_of_memory,
            needed_bytes=outcome.needed_bytes,
            held_bytes=outcome.held_bytes,
            log="" if outcome.comparison else log,
        )

    def end(self) -> None:
        """End the process and all that it has started, whatever they are doing.

        The end of its input tells the process to end itself and its workers, which a second Ctrl-C
        cannot interrupt. What does not end then is killed.
        """
        self._stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
        end_family(str(self.draft))
        self._process.wait()
        self._close()

    # ------------------------------------------------------------ how it is done

    def _environment(self) -> dict[str, str]:
        return {
            **python_environment(),
            # Files that it leaves there are removed with the draft.
            "TMPDIR": str((self.draft / "scratch").resolve()),
            MARK: str(self.draft),
            **self.place.variables,
        }

    def _brought(self) -> Outcome | Lost:
        """The outcome, or why there is none. Afterwards the process and all that it started have
        ended."""
        late = self._process.poll() is None
        try:
            data = (self.draft / "outcome.json").read_bytes()
            outcome = msgspec.json.decode(data, type=Outcome)
        except (OSError, msgspec.MsgspecError):
            self.end()
            if late:
                return Outcome(reason=f"it did not finish within {self._limit:g} s")
            return self._died(self._process.returncode)
        if late:  # it has done its work but does not end
            self.end()
        self._close()
        return outcome

    def _died(self, status: int) -> Outcome | Lost:
        if status == DISK_FULL:
            raise GolowError(
                f"the disk is full: a cell cannot write to {self.draft.parent}, or to the folder "
                f"of golow's builds\n{self._end_of_log()}",
                "free some space and resume the study.",
            )
        if status >= 0:
            return Outcome(reason=f"its process ended with status {status}")
        name = signal.Signals(-status).name
        if -status == signal.SIGKILL and out_of_memory_kills() > self._kills:
            return Outcome(
                reason=f"{OUT_OF_MEMORY}: the system ended its process to free memory",
                out_of_memory=self.cell.levels,
            )
        if -status in _FROM_OUTSIDE:
            return Lost(f"its process was ended by {name}")
        return Outcome(reason=f"its process was ended by {name}")

    def _end_of_log(self) -> str:
        with suppress(OSError):
            file = self.draft / "log"
            return file.read_bytes()[-LOG_BYTES:].decode(errors="replace").strip()
        return ""

    def _tidy(self, kept: str) -> None:
        for entry in self.draft.iterdir():
            if entry.is_dir() and entry.name != kept:
                shutil.rmtree(entry, ignore_errors=True)
            elif not entry.is_dir():
                entry.unlink(missing_ok=True)

    def _close(self) -> None:
        if not self._log.closed:
            self._process.wait()
            self._log.close()
            if self._end_of_process is not None:
                os.close(self._end_of_process)
            for stream in pipes(self._process):
                stream.close()


def _not_started(draft: Path, error: OSError) -> GolowError:
    return GolowError(
        f"cannot start a cell in {draft}: {error.strerror or error}",
        "free some space and resume the study.",
    )


def _end_of(process: subprocess.Popen[bytes]) -> int | None:
    """A descriptor that becomes readable when the process has ended; None on an old kernel."""
    try:
        return os.pidfd_open(process.pid)
    except OSError:
        return None

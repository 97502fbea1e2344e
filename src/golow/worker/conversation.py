"""A conversation with a worker process: start it, ask, be answered in time, end it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from golow.records.errors import Unsupported, WorkerFailure
from golow.worker import process
from golow.worker.awaited_answer import AwaitedAnswer
from golow.worker.dead_worker import how_it_ended, last_words, out_of_memory_kills
from golow.worker.line_exchange import Lines
from golow.worker.protocol import line
from golow.worker.time_limits import Limits
from golow.worker.turn import Turn

SETTLE_SECONDS = 0.03
LOOK_SECONDS = 0.1  # between checks whether others request the GPU
SECONDS_TO_END = 5.0  # for a process to exit after its output has ended
Report = TypeVar("Report", bound=msgspec.Struct)


def _ignore(message: str) -> None:
    """Do not report a delay."""


class Conversation:
    """One worker process. Every failure to answer correctly raises `WorkerFailure` with a reason,
    after the process and all its children have been ended.

    on_delay: called with a message when an answer is late. on_busy: called with one if an answer is
    very late, which states whether the cores are busy.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        threads: int,
        affinity: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        turn: Turn | None = None,
    ) -> None:
        """turn: this worker's comparison among those that share a GPU, if several do."""
        self.name = name
        self.limits = limits or Limits()
        self._turn = turn or Turn()
        self._log = tempfile.TemporaryFile(prefix="golow-log-")  # noqa: SIM115 (closed in close)
        self._out_of_memory_kills = out_of_memory_kills()
        self.waiting = self._dismissed = self._ended = False
        # With OMP_WAIT_POLICY=active its threads would spin during the blocks of the others.
        self._restless, self._paused = process.is_restless(environment or {}), False
        self.stood_aside = 0.0  # seconds
        self.requests = 0  # so far
        self.answered: float | None = None  # when `has_answered` saw it
        self.on_delay: Callable[[str], None] = _ignore
        self.on_busy: Callable[[str], None] = _ignore
        self.started = time.perf_counter()
        try:
            self._process = process.start(command, threads, environment or {}, self._log.fileno())
        except OSError as error:
            self._log.close()
            raise WorkerFailure("not started", f"{command[0]} did not start: {error}") from error
        self.lines = Lines(self._process)
        if affinity:
            os.sched_setaffinity(self._process.pid, affinity)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        """Process ids: one for each rank."""
        return [self.pid]

    def dismiss(self) -> None:
        """Ask the worker to exit, without waiting for it; `close` waits.

        A worker that still owes an answer (after Ctrl-C) would not read the request.
        """
        if not (self.waiting or self._dismissed or self._ended):
            self._go_on()
            with contextlib.suppress(OSError):
                self.lines.write(line({"do": "quit"}))
            self._dismissed = True

    def close(self) -> None:
        """Make the worker exit; if it does not, kill its whole process group."""
        try:
            self.dismiss()
            if self._dismissed:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(self.limits.quit)
        finally:  # also after a second Ctrl-C
            self._kill()
            self._log.close()

    def kill(self) -> None:
        """Kill its process group, from any thread. Another one that waits for an answer then gets
        `WorkerFailure`, and ends the conversation."""
        if not self._ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> float:
        """Make the worker exit; seconds from the request until its process is gone."""
        began = time.perf_counter()
        self.dismiss()
        if not process.wait_until_gone(self.pid, self.limits.quit):
            raise self.fail("hung", f"it did not exit within {self.limits.quit:.0f} s of `quit`")
        seconds = time.perf_counter() - began
        self.close()
        return seconds

    def log(self) -> str:
        """The last part of the worker's standard error."""
        return "" if self._log.closed else last_words(self._log.fileno())

    # ------------------------------------------------------------ questions and answers

    def ask(
        self,
        request: dict[str, Any],
        limit: float,
        *,
        expected: float | None = None,
        within: float | None = None,
    ) -> dict[str, Any]:
        """The answer to a request that every worker must know; a refusal ends the worker.

        limit: seconds for the answer. expected: those after which it should have come; `on_delay`
        is called if it has not. within: those after which the caller continues: `OutOfTime`.
        """
        answer = self.answer(request, limit, expected=expected, within=within)
        return self.require_success(answer)

    def ask_optionally(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        """The answer to an optional request; a worker that does not know it stays alive."""
        answer = self.answer(request, limit)
        if answer.get("error") in ("unsupported", "unknown_request"):
            raise Unsupported(self.name, str(answer.get("message", "it gave no reason")))
        return self.require_success(answer)

    def answer(
        self,
        request: dict[str, Any],
        limit: float,
        *,
        gives_way: bool = False,
        expected: float | None = None,
        within: float | None = None,
    ) -> dict[str, Any]:
        """The answer to a request, also if it is a refusal."""
        self.requests += 1
        with self._turn.beside():
            self.send(request)
            what = str(request["do"])
            return self.read(what, limit, gives_way=gives_way, expected=expected, within=within)

    def send(self, request: dict[str, Any]) -> None:
        """Write a request, whose answer is then read."""
        self._require_silence()
        self._go_on()
        try:
            self.lines.write(line(request))
        except OSError:
            raise self._died() from None
        self.waiting = True

    def require_success(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The answer; a refusal ends the worker."""
        if answer.get("ok") is True:
            return answer
        message = str(answer.get("message", "it gave no reason"))
        if answer.get("error") == "unsupported":
            self.close()
            raise Unsupported(
                self.name, message, str(answer.get("node", "")), str(answer.get("module", ""))
            )
        kind = "out of memory" if answer.get("error") == "out_of_memory" else "failed"
        raise self.fail(kind, message)

    def require_written(self, file: Path) -> None:
        """Fail unless the file that it reported to have written is there."""
        if not file.is_file():
            self.fail(
                "protocol", f"it reported that it wrote {file.name}, but there is no such file"
            )

    def _require_silence(self) -> None:
        """A second line after one request would be read as the answer to the next."""
        if self.lines.unread or self.has_come(0):
            self.fail("protocol", f"it wrote without a request: {self.lines.unread[:80]!r}")

    def read(
        self,
        what: str,
        limit: float,
        *,
        gives_way: bool = False,
        expected: float | None = None,
        within: float | None = None,
    ) -> dict[str, Any]:
        """The worker's next line, if it comes within the limit. gives_way: pause the worker while
        others have exclusive use of the GPU. expected: seconds after which it should have come.
        within: those after which `OutOfTime` is raised."""
        return self.awaited(AwaitedAnswer(self, what, limit, expected, within), gives_way)

    def awaited(self, awaited: AwaitedAnswer, gives_way: bool = False) -> dict[str, Any]:
        """The answer to a request that was sent before."""
        while not self.lines.is_whole:
            left = awaited.seconds_to_next_look()
            came = self.has_come(min(left, LOOK_SECONDS) if gives_way else left)
            if gives_way and not came and self._turn.is_wanted:
                awaited.deadline += self._stand_aside()
        return self.take(awaited.what)

    def take(self, what: str) -> dict[str, Any]:
        """The answer, which has come whole."""
        text = self.lines.take()
        self.waiting = False
        self._pause()
        try:
            return msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:
            message = f"its answer to `{what}` is not a JSON object: {text[:80]!r}"
            raise self.fail("protocol", message) from None

    def has_answered(self, seconds: float) -> bool:
        """True if an answer, or its end, comes within that time; it is not read. The moment is
        kept as the end of what the worker did."""
        if not self.lines.has_data(seconds):
            return False
        self.answered = time.perf_counter()
        return True

    def has_come(self, seconds: float) -> bool:
        """True if the worker wrote something within that time."""
        try:
            return self.lines.wait(seconds)
        except EOFError:
            raise self._died() from None

    def _stand_aside(self) -> float:
        """Pause the worker while others have exclusive use of the GPU; returns the seconds."""
        began = time.monotonic()
        with process.stopped(self.pid):
            time.sleep(SETTLE_SECONDS)  # enqueued work finishes
            self._turn.step_aside()
        seconds = time.monotonic() - began
        self.stood_aside += seconds
        return seconds

    def _pause(self) -> None:
        """Stop a restless worker until it is asked something."""
        if self._restless:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGSTOP)
                self._paused = True

    def _go_on(self) -> None:
        if self._paused:
            self._paused = False
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)

    def convert(self, answer: dict[str, Any], kind: type[Report]) -> Report:
        """The answer as a report; a malformed one ends the worker."""
        try:
            return msgspec.convert(answer, kind)
        except msgspec.ValidationError as error:
            raise self.fail("protocol", f"its answer is malformed: {error}") from error

    def _died(self) -> WorkerFailure:
        try:
            status = self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            raise self.fail(
                "protocol", "it closed its standard output but is still running"
            ) from None
        raise self.fail(*how_it_ended(status, self._out_of_memory_kills))

    def fail(self, kind: str, message: str) -> WorkerFailure:
        """End the worker and raise; typed as returning so that a caller can write ``raise``."""
        self._kill()
        log = self.log()
        # The verdict states `failed` in front of it.
        raise WorkerFailure(kind, message if kind == "failed" else f"{kind}: {message}", log)

    def _kill(self) -> None:
        if self._ended:  # its process id may belong to another process by now
            return
        self._ended = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.lines.close()

"""An awaited answer of a worker, and the reaction if it is late."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from golow.records.errors import OutOfTime
from golow.worker import process
from golow.worker.scheduling import ProcessorShare

if TYPE_CHECKING:
    from golow.worker.conversation import Conversation

NOTICE_SECONDS = 2.0  # after the expected end of a request, until the delay is reported
BUSY_SECONDS = 20.0  # after a request that should have ended, until the reason is reported
LOOK_SECONDS = 1.0  # between looks at a process whose answer is late
MOST_LOOKS_AT_STOPPED = 5  # that find it stopped by a signal or a debugger, until it is abandoned


class AwaitedAnswer:
    """The answer to the request ``what``, in time or late.

    limit: seconds after which the worker counts as hung and is ended. expected: seconds within
    which the answer should come; None if unknown. within: seconds after which the caller continues.
    """

    def __init__(
        self,
        worker: Conversation,
        what: str,
        limit: float,
        expected: float | None,
        within: float | None,
    ) -> None:
        self._worker, self.what = worker, what
        self._limit, self._within = limit, within
        self._began = time.monotonic()
        self.deadline = self._began + limit
        self._notice = None if expected is None else self._began + expected + NOTICE_SECONDS
        self._hint = "" if expected is None else f" (it should take {expected:.1f} s)"
        self._share: ProcessorShare | None = None  # since it is late
        self._told = False
        self._seen_stopped = 0

    def seconds_to_next_look(self) -> float:
        """Return the seconds to wait for the answer, which has not come yet.

        Ends the worker and raises `WorkerFailure` if it hangs or was stopped; raises `OutOfTime` if
        the caller has to continue.
        """
        now, worker = time.monotonic(), self._worker
        if now >= self.deadline:
            reason = f"no answer to `{self.what}` within {self._limit:.0f} s{self._hint}"
            raise worker.fail("hung", reason)
        if self._within is not None and now >= self._began + self._within:
            cause = f"; {self._share.words}" if self._share is not None else ""
            reason = f"no answer within {now - self._began:.0f} s{self._hint}{cause}"
            raise OutOfTime(worker.name, reason)
        if self._notice is not None and now >= self._notice:
            self._notice = now + LOOK_SECONDS
            self._look(now)
        ends = [self.deadline]
        ends += [] if self._notice is None else [self._notice]
        ends += [] if self._within is None else [self._began + self._within]
        return min(ends) - now

    def _look(self, now: float) -> None:
        """Report that the answer is late, and give up on a worker that cannot answer."""
        worker = self._worker
        if self._share is None:
            self._share = ProcessorShare(worker.pid)
            worker.on_delay(
                f"waiting for {worker.name}: no answer to `{self.what}` yet{self._hint}"
            )
        if not self._told and now - self._began >= BUSY_SECONDS:
            self._told = True
            seconds = f"{worker.name} has not answered for {now - self._began:.0f} s{self._hint}"
            worker.on_busy(f"{seconds}: {self._share.words}")
        self._seen_stopped = self._seen_stopped + 1 if process.is_stopped(worker.pid) else 0
        if self._seen_stopped == MOST_LOOKS_AT_STOPPED:
            raise worker.fail("hung", f"no answer to `{self.what}`: its process is stopped")

"""The parent's side of the protocol: starts a worker, asks, waits without spinning, cleans up."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
import psutil

from golow.record import Sample, Unsupported, WorkerFailure
from golow.worker.protocol import LoadReport, TimeReport, line
from golow.worker.scheduling import ContentionMeter

LOG_LINES = 15
Report = TypeVar("Report", LoadReport, TimeReport)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that a worker may take to answer; the time request's limit grows with its work."""

    load: float = 900.0
    outputs: float = 300.0
    iteration: float = 60.0
    memory: float = 300.0
    quit: float = 5.0


class Worker:
    """One worker process. Every failure to answer properly raises `WorkerFailure` with a reason,
    after the process and all its children have been ended."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        threads: int,
        affinity: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.name = name
        self.limits = limits or Limits()
        self._log = tempfile.TemporaryFile(prefix="golow-log-")  # noqa: SIM115 (closed in close)
        self._out_of_memory_kills = _out_of_memory_kills()
        self._seconds_per_iteration = self.limits.iteration
        self.started = time.perf_counter()
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=worker_environment(threads, environment or {}),
                # A group of its own, so that it and its compilers can be ended together, and so
                # that Ctrl-C reaches only the parent, which then ends it in order.
                start_new_session=True,
            )
        except OSError as error:
            raise WorkerFailure("not started", f"{command[0]} did not start: {error}") from error
        if affinity:
            os.sched_setaffinity(self._process.pid, affinity)
        self._buffer = b""
        self._meter = ContentionMeter(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    # ------------------------------------------------------------ requests

    def load(self, bundle: Path) -> LoadReport:
        """Make the worker ready for the bundle's workload."""
        answer = self._request({"do": "load", "bundle": str(bundle)}, self.limits.load)
        return self._typed(answer, LoadReport)

    def outputs(self, batches: Sequence[int], learning_rate: float, file: Path) -> None:
        """Have the batches run from the start, and their tensors written to the file."""
        request = {
            "do": "outputs",
            "batches": list(batches),
            "learning_rate": learning_rate,
            "file": str(file),
        }
        self._request(request, self.limits.outputs)
        if not file.is_file():
            self._fail("protocol", f"it said that it wrote {file.name}, but there is no such file")

    def time(self, iterations: int, warmup: int) -> Sample:
        """Time that many iterations; the sample says how long the worker waited for a core."""
        limit = max(self.limits.iteration, 20 * self._seconds_per_iteration * (iterations + warmup))
        before, start = self._meter.read(), time.perf_counter_ns()
        request = {"do": "time", "iterations": iterations, "warmup": warmup}
        report = self._typed(self._request(request, limit), TimeReport)
        wall, after = time.perf_counter_ns() - start, self._meter.read()
        if len(report.host_ns) != iterations or any(ns <= 0 for ns in report.host_ns):
            self._fail(
                "protocol",
                f"it was asked for {iterations} iterations and timed {len(report.host_ns)}, "
                "or gave a time that is not positive",
            )
        self._seconds_per_iteration = max(report.host_ns) / 1e9
        return Sample(
            host_ns=report.host_ns,
            device_ns=report.device_ns or (),
            wait_share=self._meter.wait_share(before, after, wall),
        )

    def allocated_peak(self) -> int | None:
        """Bytes that one iteration holds at most, as the worker's own allocator tells."""
        answer = self._request({"do": "memory"}, self.limits.memory)
        peak = answer.get("allocated_peak")
        return int(peak) if peak is not None else None

    def resident_bytes(self) -> dict[str, int]:
        """Resident set now and its highest mark, taken from outside."""
        found = {}
        try:
            text = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return {"resident": psutil.Process(self.pid).memory_info().rss}
        for row in text.splitlines():
            name, _, value = row.partition(":")
            if name in ("VmRSS", "VmHWM"):
                found["resident" if name == "VmRSS" else "resident_peak"] = 1024 * int(
                    value.split()[0]
                )
        return found

    def reset_resident_peak(self) -> None:
        """Let the highest mark of the resident set begin again from what is resident now."""
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def close(self) -> None:
        """Ask the worker to end, and end it with its whole group when it does not."""
        if self._process.poll() is None:
            try:
                self._write({"do": "quit"})
                self._process.wait(self.limits.quit)
            except (OSError, subprocess.TimeoutExpired):
                pass
        self._kill()
        self._log.close()

    def log(self) -> str:
        """The end of what the worker wrote to standard error."""
        if self._log.closed:
            return ""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 8192))
        text = self._log.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-LOG_LINES:])

    # ------------------------------------------------------------ how it is done

    def _request(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        try:
            self._write(request)
        except OSError:
            self._died()
        answer = self._read(str(request["do"]), limit)
        if answer.get("ok") is True:
            return answer
        message = str(answer.get("message", "it gave no reason"))
        if answer.get("error") == "unsupported":
            self.close()
            raise Unsupported(
                self.name, message, str(answer.get("node", "")), str(answer.get("module", ""))
            )
        kind = "out of memory" if answer.get("error") == "out_of_memory" else "failed"
        raise self._fail(kind, message)

    def _write(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.write(line(request))
        self._process.stdin.flush()

    def _read(self, what: str, limit: float) -> dict[str, Any]:
        """The next line of the worker; blocks in the kernel until it comes or the limit ends."""
        assert self._process.stdout is not None  # noqa: S101
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise self._fail("hung", f"no answer to `{what}` within {limit:.0f} s")
                data = os.read(descriptor, 1 << 16)
                if not data:
                    self._died()
                self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\n")
        try:
            return msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:
            raise self._fail(
                "protocol", f"its answer to `{what}` is not a JSON object: {text[:80]!r}"
            ) from None

    def _typed(self, answer: dict[str, Any], kind: type[Report]) -> Report:
        try:
            return msgspec.convert(answer, kind)
        except msgspec.ValidationError as error:
            raise self._fail("protocol", f"its answer is malformed: {error}") from error

    def _died(self) -> None:
        status = self._process.wait()
        if status < 0:
            name = signal.Signals(-status).name
            if status == -signal.SIGKILL and _out_of_memory_kills() > self._out_of_memory_kills:
                raise self._fail("out of memory", "the system ended it to get memory back")
            raise self._fail("died", f"it was ended by {name}")
        raise self._fail("died", f"it ended with status {status}")

    def _fail(self, kind: str, message: str) -> WorkerFailure:
        """End the worker and raise; typed as returning so that a caller can write ``raise``."""
        log = self.log()
        self._kill()
        raise WorkerFailure(kind, f"{kind}: {message}", log)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def worker_environment(threads: int, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of every worker: the same threads and wait policy whatever the level."""
    return {
        **os.environ,
        **thread_settings(threads),
        # The parent's import path, so that a model found there is found by the worker too.
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        **extra,
    }


def thread_settings(threads: int) -> dict[str, str]:
    """Thread count for every runtime a level may use. Waiting threads sleep: spinning ones
    would take the core that the others need."""
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "OMP_WAIT_POLICY": "PASSIVE",
        "OMP_DYNAMIC": "FALSE",
    }


def _out_of_memory_kills() -> int:
    """How many processes the kernel has ended for want of memory since it started."""
    try:
        for row in Path("/proc/vmstat").read_text().splitlines():
            if row.startswith("oom_kill "):
                return int(row.split()[1])
    except OSError:
        pass
    return 0

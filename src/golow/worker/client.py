"""The parent's side of the protocol: start a worker, send requests, wait idly, end it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from golow.record import LayerTime, Mode, Sample, Unsupported, WorkerFailure
from golow.worker import process
from golow.worker.limits import Limits
from golow.worker.lines import Lines
from golow.worker.protocol import (
    CopiesReport,
    EpochReport,
    LayersReport,
    LoadReport,
    PredictReport,
    TimeReport,
    line,
)
from golow.worker.scheduling import ContentionMeter
from golow.worker.turn import Turn

SETTLE_SECONDS = 0.03
LOOK_SECONDS = 0.1  # between checks whether others request the GPU
SECONDS_TO_END = 5.0  # for a process to exit after its output has ended
Report = TypeVar("Report", bound=msgspec.Struct)


class LayerSample(NamedTuple):
    """The result of a ``layers`` request, and how long the worker waited for a core meanwhile."""

    steps: tuple[LayerTime, ...]
    wait_share: float


class Worker:
    """One worker process. Every failure to answer correctly raises `WorkerFailure` with a reason,
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
        turn: Turn | None = None,
    ) -> None:
        """turn: this worker's comparison among those that share a GPU, if several do."""
        self.name = name
        self.limits = limits or Limits()
        self._turn = turn or Turn()
        self.last: float | None = (
            0.0  # the last result of the last `time`; None if it was not a number
        )
        self._log = tempfile.TemporaryFile(prefix="golow-log-")  # noqa: SIM115 (closed in close)
        self._out_of_memory_kills = process.out_of_memory_kills()
        self._seconds_per_iteration = 0.0  # unknown until measured
        self._waiting = self._dismissed = self._ended = False
        self._stood_aside = 0.0  # seconds
        self.started = time.perf_counter()
        try:
            self._process = process.start(command, threads, environment or {}, self._log.fileno())
        except OSError as error:
            self._log.close()
            raise WorkerFailure("not started", f"{command[0]} did not start: {error}") from error
        self._lines = Lines(self._process)
        if affinity:
            os.sched_setaffinity(self._process.pid, affinity)
        self._meter = ContentionMeter(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    # ------------------------------------------------------------ requests

    def wake(self, mode: Mode) -> None:
        """Import what loading a workload of that mode needs; `load` waits until that is done."""
        with contextlib.suppress(OSError):  # it has died: `load` reports how
            self._lines.write(line({"do": "wake", "mode": mode}))
        self._waiting = True

    def load(self, bundle: Path) -> LoadReport:
        """Load the bundle's workload."""
        return self._convert(self._load(bundle), LoadReport)

    def build(self, bundle: Path) -> LoadReport:
        """Load the bundle's workload if that builds something, which may take minutes: the worker
        is paused while others have exclusive use of the GPU. That time does not count."""
        report = self._convert(self._load(bundle, gives_way=True), LoadReport)
        build = report.phases.get("build", 0.0) - self._stood_aside
        return msgspec.structs.replace(report, phases={**report.phases, "build": max(0.0, build)})

    def outputs(self, batches: Sequence[int], learning_rate: float, file: Path) -> None:
        """Run the batches from the start, and write their tensors to the file."""
        request = {
            "do": "outputs",
            "batches": list(batches),
            "learning_rate": learning_rate,
            "file": str(file),
        }
        self._request(request, self.limits.outputs)
        self._require_written(file)

    def time(self, iterations: int, warmup: int, cold: bool = False) -> Sample:
        """Time that many iterations; the sample includes how long the worker waited for a core.

        cold: the device's L2 cache is emptied before each.
        """
        limit = max(self.limits.iteration, 20 * self._seconds_per_iteration * (iterations + warmup))
        before, start = self._meter.read(), time.perf_counter_ns()
        request: dict[str, Any] = {"do": "time", "iterations": iterations, "warmup": warmup}
        if cold:
            request["cold"] = True
        report = self._convert(self._request(request, limit), TimeReport)
        wall, after = time.perf_counter_ns() - start, self._meter.read()
        # Its threads spin for some milliseconds before they sleep; the next worker's block should
        # not begin while they do.
        time.sleep(SETTLE_SECONDS)
        if len(report.host_ns) != iterations or any(ns <= 0 for ns in report.host_ns):
            self._fail(
                "protocol",
                f"the request was for {iterations} iterations; it timed {len(report.host_ns)}, "
                "or returned a time that is not positive",
            )
        device_ns = report.device_ns or ()
        self._seconds_per_iteration = max(*report.host_ns, *device_ns, 0) / 1e9
        self.last = report.last
        return Sample(
            host_ns=report.host_ns,
            device_ns=device_ns,
            wait_share=self._meter.wait_share(before, after, wall),
        )

    def allocated_peak(self) -> int | None:
        """Peak bytes of one iteration, as the worker's own allocator reports them."""
        answer = self._request({"do": "memory"}, self.limits.memory)
        peak = answer.get("allocated_peak")
        return int(peak) if peak is not None else None

    def layers(self, iterations: int) -> LayerSample:
        """The steps of an iteration, each timed separately in that many iterations.

        Raises `Unsupported` if the level cannot be divided or does not know the request; the worker
        stays alive.
        """
        limit = max(self.limits.iteration, 40 * self._seconds_per_iteration * iterations)
        before, start = self._meter.read(), time.perf_counter_ns()
        answer = self._optional({"do": "layers", "iterations": iterations}, limit)
        wall, after = time.perf_counter_ns() - start, self._meter.read()
        steps = self._convert(answer, LayersReport).layers
        if not steps or any(not s.modules or len(s.ns) != iterations for s in steps):
            self._fail(
                "protocol",
                f"the request was for the layers of {iterations} iterations; a step has another "
                "number of times, or no layer",
            )
        if any(ns < 0 for step in steps for ns in step.ns):
            self._fail("protocol", "a layer has a negative time")
        return LayerSample(steps, self._meter.wait_share(before, after, wall) or 0.0)

    def copies(self, iterations: int) -> CopiesReport | None:
        """What an iteration copies from host to device when it is fed from host memory; None if the
        worker does not know the request, or copies nothing."""
        limit = max(self.limits.iteration, 40 * self._seconds_per_iteration * iterations)
        answer = self._answer({"do": "copies", "iterations": iterations}, limit)
        if answer.get("error") in ("unsupported", "unknown_request"):
            return None
        return self._convert(self._require_success(answer), CopiesReport)

    def epoch(
        self,
        data: Path,
        order: Path,
        rates: Sequence[float],
        *,
        scale: Sequence[float],
        shift: Sequence[float],
        first: int = 0,
        checksum: int = 0,
    ) -> EpochReport:
        """Train on the order's batches from ``first`` on, each with its own learning rate.

        This and the three requests below raise `Unsupported` if the worker does not know the
        request or the level cannot do it; the worker stays alive.
        """
        request = {
            "do": "epoch",
            "data": str(data),
            "order": str(order),
            "first": first,
            "rates": list(rates),
            "scale": list(scale),
            "shift": list(shift),
            "checksum": checksum,
        }
        report = self._convert(self._optional(request, self.limits.epoch), EpochReport)
        if len(report.losses) != len(rates) or report.nanoseconds <= 0:
            self._fail(
                "protocol",
                f"the request was to train on {len(rates)} batches; it gave {len(report.losses)} "
                "losses, or a time that is not positive",
            )
        return report

    def save(self, file: Path) -> None:
        """Write the state of the training to the file."""
        self._optional({"do": "save", "file": str(file)}, self.limits.epoch)
        self._require_written(file)

    def restore(self, file: Path) -> None:
        """Continue from a state that `save` wrote, or infer with its weights."""
        self._optional({"do": "restore", "file": str(file)}, self.limits.load)

    def predict(
        self,
        data: Path,
        file: Path,
        *,
        first: int,
        batches: int,
        scale: Sequence[float],
        shift: Sequence[float],
    ) -> PredictReport:
        """Write the outputs of that many batches of the data set to the file."""
        request = {
            "do": "predict",
            "data": str(data),
            "first": first,
            "batches": batches,
            "scale": list(scale),
            "shift": list(shift),
            "file": str(file),
        }
        report = self._convert(self._optional(request, self.limits.epoch), PredictReport)
        self._require_written(file)
        return report

    def resident_bytes(self) -> dict[str, int]:
        """The current resident set size and its peak, read from outside."""
        return process.resident_bytes(self.pid)

    def dismiss(self) -> None:
        """Ask the worker to exit, without waiting for it; `close` waits.

        A worker that still owes an answer (after Ctrl-C) would not read the request.
        """
        if not (self._waiting or self._dismissed or self._ended):
            with contextlib.suppress(OSError):
                self._lines.write(line({"do": "quit"}))
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

    def log(self) -> str:
        """The last part of the worker's standard error."""
        return "" if self._log.closed else process.last_words(self._log.fileno())

    # ------------------------------------------------------------ how it is done

    def _request(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        return self._require_success(self._answer(request, limit))

    def _optional(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        """The answer to an optional request; a worker that does not know it stays alive."""
        answer = self._answer(request, limit)
        if answer.get("error") in ("unsupported", "unknown_request"):
            raise Unsupported(self.name, str(answer.get("message", "it gave no reason")))
        return self._require_success(answer)

    def _load(self, bundle: Path, gives_way: bool = False) -> dict[str, Any]:
        # Any answer will do: a worker without `wake` imports everything when it loads.
        if self._waiting:
            self._read("wake", self.limits.load)
        request = {"do": "load", "bundle": str(bundle)}
        return self._require_success(self._answer(request, self.limits.load, gives_way))

    def _answer(
        self, request: dict[str, Any], limit: float, gives_way: bool = False
    ) -> dict[str, Any]:
        with self._turn.beside():
            self._require_silence()
            try:
                self._lines.write(line(request))
            except OSError:
                raise self._died() from None
            self._waiting = True
            return self._read(str(request["do"]), limit, gives_way)

    def _require_success(self, answer: dict[str, Any]) -> dict[str, Any]:
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
        raise self._fail(kind, message)

    def _require_written(self, file: Path) -> None:
        if not file.is_file():
            self._fail(
                "protocol", f"it reported that it wrote {file.name}, but there is no such file"
            )

    def _require_silence(self) -> None:
        """A second line after one request would be read as the answer to the next."""
        if self._lines.unread or self._has_come(0):
            self._fail("protocol", f"it wrote without a request: {self._lines.unread[:80]!r}")

    def _read(self, what: str, limit: float, gives_way: bool = False) -> dict[str, Any]:
        """The worker's next line, if it comes within the limit; a worker that yields the GPU checks
        for requests now and then."""
        deadline = time.monotonic() + limit
        while not self._lines.is_whole:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._fail("hung", f"no answer to `{what}` within {limit:.0f} s")
            came = self._has_come(min(left, LOOK_SECONDS) if gives_way else left)
            if gives_way and not came and self._turn.is_wanted:
                deadline += self._stand_aside()
        text = self._lines.take()
        self._waiting = False
        try:
            return msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:
            message = f"its answer to `{what}` is not a JSON object: {text[:80]!r}"
            raise self._fail("protocol", message) from None

    def _has_come(self, seconds: float) -> bool:
        """Whether the worker wrote something within that time."""
        try:
            return self._lines.wait(seconds)
        except EOFError:
            raise self._died() from None

    def _stand_aside(self) -> float:
        """Pause the worker while others have exclusive use of the GPU; returns the seconds."""
        began = time.monotonic()
        with process.stopped(self.pid):
            time.sleep(SETTLE_SECONDS)  # enqueued work finishes
            self._turn.step_aside()
        seconds = time.monotonic() - began
        self._stood_aside += seconds
        return seconds

    def _convert(self, answer: dict[str, Any], kind: type[Report]) -> Report:
        try:
            return msgspec.convert(answer, kind)
        except msgspec.ValidationError as error:
            raise self._fail("protocol", f"its answer is malformed: {error}") from error

    def _died(self) -> WorkerFailure:
        try:
            status = self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            raise self._fail(
                "protocol", "it closed its standard output but is still running"
            ) from None
        raise self._fail(*process.how_it_ended(status, self._out_of_memory_kills))

    def _fail(self, kind: str, message: str) -> WorkerFailure:
        """End the worker and raise; typed as returning so that a caller can write ``raise``."""
        self._kill()
        log = self.log()
        raise WorkerFailure(kind, f"{kind}: {message}", log)

    def _kill(self) -> None:
        if self._ended:  # its process id may belong to another process by now
            return
        self._ended = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._lines.close()

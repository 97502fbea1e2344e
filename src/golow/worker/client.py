"""The parent's side of the protocol: starts a worker, asks, waits without spinning, cleans up."""

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
LOOK_SECONDS = 0.1  # between looks whether others want the card
SECONDS_TO_END = 5.0  # that a process whose output has ended may take to end itself
Report = TypeVar("Report", bound=msgspec.Struct)


class LayerSample(NamedTuple):
    """What one ``layers`` request brought, and how long the worker waited for a core meanwhile."""

    steps: tuple[LayerTime, ...]
    wait_share: float


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
        turn: Turn | None = None,
    ) -> None:
        """turn: where several comparisons share a card, the place of the worker's own."""
        self.name = name
        self.limits = limits or Limits()
        self._turn = turn or Turn()
        self.last: float | None = 0.0  # what the last `time` ended with; None if it was no number
        self._log = tempfile.TemporaryFile(prefix="golow-log-")  # noqa: SIM115 (closed in close)
        self._out_of_memory_kills = process.out_of_memory_kills()
        self._seconds_per_iteration = 0.0  # not known yet
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
        """Have it import what loading a workload of that mode would; `load` waits for that."""
        with contextlib.suppress(OSError):  # it has died: `load` tells how
            self._lines.write(line({"do": "wake", "mode": mode}))
        self._waiting = True

    def load(self, bundle: Path) -> LoadReport:
        """Make the worker ready for the bundle's workload."""
        return self._convert(self._load(bundle), LoadReport)

    def build(self, bundle: Path) -> LoadReport:
        """The same for the sake of what the worker builds meanwhile, which may take minutes: where
        others want the card alone, it is stopped until they are done. That time does not count."""
        report = self._convert(self._load(bundle, gives_way=True), LoadReport)
        build = report.phases.get("build", 0.0) - self._stood_aside
        return msgspec.structs.replace(report, phases={**report.phases, "build": max(0.0, build)})

    def outputs(self, batches: Sequence[int], learning_rate: float, file: Path) -> None:
        """Have the batches run from the start, and their tensors written to the file."""
        request = {
            "do": "outputs",
            "batches": list(batches),
            "learning_rate": learning_rate,
            "file": str(file),
        }
        self._request(request, self.limits.outputs)
        self._require_written(file)

    def time(self, iterations: int, warmup: int, cold: bool = False) -> Sample:
        """Time that many iterations; the sample says how long the worker waited for a core.

        cold: the device's L2 cache is emptied before each.
        """
        limit = max(self.limits.iteration, 20 * self._seconds_per_iteration * (iterations + warmup))
        before, start = self._meter.read(), time.perf_counter_ns()
        request: dict[str, Any] = {"do": "time", "iterations": iterations, "warmup": warmup}
        if cold:
            request["cold"] = True
        report = self._convert(self._request(request, limit), TimeReport)
        wall, after = time.perf_counter_ns() - start, self._meter.read()
        # Its threads spin on for some milliseconds before they sleep; the next worker's block
        # should not begin beside them.
        time.sleep(SETTLE_SECONDS)
        if len(report.host_ns) != iterations or any(ns <= 0 for ns in report.host_ns):
            self._fail(
                "protocol",
                f"it was asked for {iterations} iterations and timed {len(report.host_ns)}, "
                "or gave a time that is not positive",
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
        """Bytes that one iteration holds at most, as the worker's own allocator tells."""
        answer = self._request({"do": "memory"}, self.limits.memory)
        peak = answer.get("allocated_peak")
        return int(peak) if peak is not None else None

    def layers(self, iterations: int) -> LayerSample:
        """The steps of an iteration, each timed by itself in that many iterations.

        Raises `Unsupported` where the level cannot be divided or does not know the request; the
        worker lives on then.
        """
        limit = max(self.limits.iteration, 40 * self._seconds_per_iteration * iterations)
        before, start = self._meter.read(), time.perf_counter_ns()
        answer = self._optional({"do": "layers", "iterations": iterations}, limit)
        wall, after = time.perf_counter_ns() - start, self._meter.read()
        steps = self._convert(answer, LayersReport).layers
        if not steps or any(not s.modules or len(s.ns) != iterations for s in steps):
            self._fail(
                "protocol",
                f"it was asked for the layers of {iterations} iterations, and a step has another "
                "number of times, or no layer",
            )
        if any(ns < 0 for step in steps for ns in step.ns):
            self._fail("protocol", "a layer took a time below zero")
        return LayerSample(steps, self._meter.wait_share(before, after, wall) or 0.0)

    def copies(self, iterations: int) -> CopiesReport | None:
        """What an iteration copies from host to device when it is fed from host memory; None where
        the worker does not know the request, or copies nothing."""
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

        Raises `Unsupported`, here and in the three requests below, where the worker does not know
        the request or the level cannot do it; it lives on then.
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
                f"it was asked to train on {len(rates)} batches and gave {len(report.losses)} "
                "losses, or a time that is not positive",
            )
        return report

    def save(self, file: Path) -> None:
        """Have the state of the training written to the file."""
        self._optional({"do": "save", "file": str(file)}, self.limits.epoch)
        self._require_written(file)

    def restore(self, file: Path) -> None:
        """Have the worker go on from a state that `save` wrote, or infer with its weights."""
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
        """Have the outputs of so many batches of the data set written to the file."""
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
        """Resident set now and its highest mark, taken from outside."""
        return process.resident_bytes(self.pid)

    def dismiss(self) -> None:
        """Ask the worker to end, without waiting for it; `close` does.

        One that still owes an answer (Ctrl-C came meanwhile) would not hear the question.
        """
        if not (self._waiting or self._dismissed or self._ended):
            with contextlib.suppress(OSError):
                self._lines.write(line({"do": "quit"}))
            self._dismissed = True

    def close(self) -> None:
        """Have the worker end, and end it with its whole group when it does not."""
        try:
            self.dismiss()
            if self._dismissed:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(self.limits.quit)
        finally:  # also when a second Ctrl-C comes
            self._kill()
            self._log.close()

    def log(self) -> str:
        """The end of what the worker wrote to standard error."""
        return "" if self._log.closed else process.last_words(self._log.fileno())

    # ------------------------------------------------------------ how it is done

    def _request(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        return self._require_success(self._answer(request, limit))

    def _optional(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        """The answer to a request that a worker need not know; it lives on where it does not."""
        answer = self._answer(request, limit)
        if answer.get("error") in ("unsupported", "unknown_request"):
            raise Unsupported(self.name, str(answer.get("message", "it gave no reason")))
        return self._require_success(answer)

    def _load(self, bundle: Path, gives_way: bool = False) -> dict[str, Any]:
        if self._waiting:  # any answer will do: who does not know `wake` does all when it loads
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
        """The answer, unless it is a refusal, with which the worker's life ends."""
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
            self._fail("protocol", f"it said that it wrote {file.name}, but there is no such file")

    def _require_silence(self) -> None:
        """A second line to one request would be taken for the answer to the next."""
        if self._lines.unread or self._has_come(0):
            self._fail("protocol", f"it wrote without being asked: {self._lines.unread[:80]!r}")

    def _read(self, what: str, limit: float, gives_way: bool = False) -> dict[str, Any]:
        """The next line of the worker, if it comes within the limit; who gives way looks now and
        then whether to."""
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
        """Whether the worker wrote something in that time."""
        try:
            return self._lines.wait(seconds)
        except EOFError:
            raise self._died() from None

    def _stand_aside(self) -> float:
        """Stop the worker while others have the card alone; for how many seconds."""
        began = time.monotonic()
        with process.stopped(self.pid):
            time.sleep(SETTLE_SECONDS)  # what it has enqueued ends
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
            raise self._fail("protocol", "it closed its standard output and lives on") from None
        raise self._fail(*process.how_it_ended(status, self._out_of_memory_kills))

    def _fail(self, kind: str, message: str) -> WorkerFailure:
        """End the worker and raise; typed as returning so that a caller can write ``raise``."""
        self._kill()
        log = self.log()
        raise WorkerFailure(kind, f"{kind}: {message}", log)

    def _kill(self) -> None:
        if self._ended:  # its process id may be another's by now
            return
        self._ended = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._lines.close()

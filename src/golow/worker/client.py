"""The parent's side of the protocol: the requests to a worker."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from golow.records.comparison import LayerTime, Sample
from golow.records.errors import Unsupported
from golow.records.workload import Mode
from golow.worker import process
from golow.worker.conversation import SETTLE_SECONDS
from golow.worker.protocol import (
    VERSION,
    ArenaReport,
    Challenge,
    ChoicesReport,
    CopiesReport,
    CountReport,
    LayersReport,
    LoadReport,
    TimeReport,
    TimeRequest,
    ValuesReport,
    line,
)
from golow.worker.scheduling import ContentionMeter, busy_ns, passed_ns
from golow.worker.time_limits import Limits
from golow.worker.training_requests import TrainingRequests
from golow.worker.turn import Turn

LOADING = "batch_source"
"""The choice whose alternatives may start processes that load batches."""

PATIENCE = 20
"""A worker may take this many times the expected time of a block. Other programs may disturb it."""


class LayerSample(NamedTuple):
    """The result of a ``layers`` request, and how long the worker waited for a core meanwhile.
    ranks: the steps of each rank; ``steps`` are those of rank 0."""

    steps: tuple[LayerTime, ...]
    wait_share: float
    ranks: tuple[tuple[LayerTime, ...], ...]


class Worker(TrainingRequests):
    """A worker process and the protocol's requests. A failure to answer correctly raises
    `WorkerFailure` and ends the process."""

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
        choices: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        """turn: this worker's comparison among those that share a GPU, if several do. choices: the
        alternatives that it makes whenever it loads; by name, the choice that each belongs to and
        the value that must then be in effect."""
        super().__init__(
            name,
            command,
            threads=threads,
            affinity=affinity,
            environment=environment,
            limits=limits,
            turn=turn,
        )
        self._choices = dict(choices or {})
        self.last: float | None = 0.0  # of the last `time`; None if it was not finite
        self.idle = 0.0  # seconds between its imports and what it loads, if it was started early
        self._seconds_per_iteration = 0.0  # unknown until measured
        self.meter = ContentionMeter(self.pid)
        # A data loader's processes take no time from an iteration, as they do not for a user.
        self._counts_children = all(choice != LOADING for choice, _ in self._choices.values())
        # Processor time at the end of the last `time` request, and the number of requests then.
        self._busy_then: tuple[int | None, int] = (None, 0)

    def wake(self, mode: Mode) -> None:
        """Import the modules needed to load a workload of that mode; `load` waits for this."""
        with contextlib.suppress(OSError):  # it has died: `load` reports how
            self.lines.write(line({"do": "wake", "mode": mode}))
        self.waiting = True

    def import_all(self, mode: Mode) -> float:
        """Import the same modules and wait; returns the seconds since the process was started."""
        self.wake(mode)
        self.read("wake", self.limits.load)
        return time.perf_counter() - self.started

    def load(self, bundle: Path) -> LoadReport:
        """Load the bundle's workload."""
        return self._load(bundle)

    def build(self, bundle: Path) -> LoadReport:
        """Load the bundle's workload if that builds something, which may take minutes: the worker
        is paused while others have exclusive use of the GPU. That time does not count."""
        report = self._load(bundle, gives_way=True)
        build = report.phases.get("build", 0.0) - self.stood_aside
        return msgspec.structs.replace(report, phases={**report.phases, "build": max(0.0, build)})

    def outputs(self, batches: Sequence[int], learning_rate: float, file: Path) -> None:
        """Run the batches from the start, and write their tensors to the file."""
        request = {
            "do": "outputs",
            "batches": list(batches),
            "learning_rate": learning_rate,
            "file": str(file),
        }
        self.ask(request, self.limits.outputs)
        self.require_written(file)

    def time(
        self,
        iterations: int,
        warmup: int,
        cold: bool = False,
        challenge: Challenge | None = None,
        within: float | None = None,
    ) -> Sample:
        """Time that many iterations; the sample includes how long the worker waited for a core.

        cold: the device's L2 cache is emptied before each. challenge: the sample then has the
        results of all iterations, untimed ones included. within: seconds after which `OutOfTime` is
        raised; the worker still owes its answer then.
        """
        request = TimeRequest(iterations=iterations, warmup=warmup, cold=cold, challenge=challenge)
        busy, requests = self._busy_then
        if busy is None or requests != self.requests:  # something else was asked in between
            busy = self._busy()
        before, start = self.meter.read(), time.perf_counter_ns()
        question = {"do": "time", **msgspec.to_builtins(request)}
        limit, expected = self._patience(iterations + warmup)
        answer = self.ask(question, limit, expected=expected, within=within)
        wall, after = time.perf_counter_ns() - start, self.meter.read()
        self._busy_then = self._busy(), self.requests
        # Its threads spin for a few milliseconds before they sleep; the next worker's block should
        # not begin while they do.
        time.sleep(SETTLE_SECONDS)
        report = self.convert(answer, TimeReport)
        if len(report.host_ns) != iterations or any(ns <= 0 for ns in report.host_ns):
            self.fail(
                "protocol",
                f"the request was for {iterations} iterations; it timed {len(report.host_ns)}, "
                "or returned a time that is not positive",
            )
        if challenge is not None and len(report.results) != iterations + warmup:
            self.fail(
                "protocol",
                f"the request was for the results of {iterations + warmup} iterations; it gave "
                f"{len(report.results)}",
            )
        device_ns = report.device_ns or ()
        self._seconds_per_iteration = max(*report.host_ns, *device_ns, 0) / 1e9
        self.last = report.last
        return Sample(
            host_ns=report.host_ns,
            device_ns=device_ns,
            wait_share=self.meter.wait_share(before, after, wall),
            wall_ns=wall,
            results=tuple(math.nan if r is None else r for r in report.results),
            busy_ns=passed_ns(busy, self._busy_then[0]),
            rank_ns=report.rank_ns,
        )

    def values(
        self,
        batch: int,
        learning_rate: float,
        first: int,
        most: int,
        file: Path,
        hard: bool = False,
    ) -> ValuesReport:
        """The values that the nodes of the plan's graph make, from that position on, up to this
        many bytes, in the file. hard: inputs of some operations are replaced by hard ones. Raises
        `Unsupported` if the level does not know the request; the worker stays alive."""
        request = {
            "do": "values",
            "batch": batch,
            "learning_rate": learning_rate,
            "first": first,
            "most": most,
            "file": str(file),
            "hard": hard,
        }
        answer = self.ask_optionally(request, self.limits.outputs)
        self.require_written(file)
        return self.convert(answer, ValuesReport)

    def result(self, file: Path) -> None:
        """Write the whole result of the last timed iteration to the file."""
        self.ask({"do": "result", "file": str(file)}, self.limits.outputs)
        self.require_written(file)

    def allocated_peak(self) -> int | None:
        """Peak bytes of one iteration, as the worker's own allocator reports them."""
        answer = self.ask({"do": "memory"}, self.limits.memory)
        peak = answer.get("allocated_peak")
        return int(peak) if peak is not None else None

    def layers(self, iterations: int) -> LayerSample:
        """The steps of an iteration, each timed separately in that many iterations.

        Raises `Unsupported` if the level cannot be divided or does not know the request; the worker
        stays alive.
        """
        limit = max(self.limits.iteration, 40 * self._seconds_per_iteration * iterations)
        before, start = self.meter.read(), time.perf_counter_ns()
        answer = self.ask_optionally({"do": "layers", "iterations": iterations}, limit)
        wall, after = time.perf_counter_ns() - start, self.meter.read()
        report = self.convert(answer, LayersReport)
        steps = report.layers
        if not steps or any(not s.modules or len(s.ns) != iterations for s in steps):
            self.fail(
                "protocol",
                f"the request was for the layers of {iterations} iterations; a step has another "
                "number of times, or no layer",
            )
        if any(ns < 0 for step in steps for ns in step.ns):
            self.fail("protocol", "a layer has a negative time")
        waited = self.meter.wait_share(before, after, wall) or 0.0
        return LayerSample(steps, waited, report.ranks or (steps,))

    def profile(self, iterations: int, file: Path) -> None:
        """Write the trace of that many iterations to the file.

        Raises `Unsupported` if the level cannot be profiled or does not know the request; the
        worker stays alive.
        """
        limit = max(self.limits.iteration, 40 * self._seconds_per_iteration * iterations)
        request = {"do": "profile", "iterations": iterations, "file": str(file)}
        self.ask_optionally(request, limit)
        self.require_written(file)

    def arena(self) -> ArenaReport:
        """The plan of an iteration's memory.

        Raises `Unsupported` if the level has none or does not know the request; the worker stays
        alive.
        """
        answer = self.ask_optionally({"do": "arena"}, self.limits.memory)
        report = self.convert(answer, ArenaReport)
        last = len(report.steps)
        if not last or any(not 0 <= b.first <= b.last <= last for b in report.buffers):
            self.fail("protocol", "a buffer of its memory is used by a step that is not there")
        if any(
            b.offset < 0 or b.bytes < 0 or b.offset + b.bytes > report.sizes.get(b.place, 0)
            for b in report.buffers
        ):
            self.fail("protocol", "a buffer of its memory extends beyond its arena")
        return report

    def count(self, library: Path) -> CountReport:
        """Make one call of the workload's forward pass between ``golow_begin`` and ``golow_end`` of
        that library; the frames of Python in it.

        Raises `Unsupported` if the level cannot do this or does not know the request; the worker
        stays alive.
        """
        request = {"do": "count", "library": str(library)}
        return self.convert(self.ask_optionally(request, self.limits.iteration), CountReport)

    def copies(self, iterations: int) -> CopiesReport | None:
        """Bytes that an iteration copies from host to device when it is fed from host memory; None
        if the worker does not know the request, or copies nothing."""
        limit = max(self.limits.iteration, 40 * self._seconds_per_iteration * iterations)
        answer = self.answer({"do": "copies", "iterations": iterations}, limit)
        if answer.get("error") in ("unsupported", "unknown_request"):
            return None
        return self.convert(self.require_success(answer), CopiesReport)

    def choices(self, names: Sequence[str]) -> dict[str, str]:
        """The values in effect of these choices, as far as the worker can read them; empty if it
        does not know the request."""
        answer = self.answer({"do": "choices", "names": list(names)}, self.limits.memory)
        if answer.get("error") in ("unsupported", "unknown_request"):
            return {}
        return self.convert(self.require_success(answer), ChoicesReport).choices

    def resident_bytes(self) -> dict[str, int]:
        """The current resident set size and its peak, read from outside."""
        return process.resident_bytes(self.pid)

    def _busy(self) -> int | None:
        return busy_ns(self.pid, self._counts_children)

    def _load(self, bundle: Path, gives_way: bool = False) -> LoadReport:
        # Any answer will do: a worker without `wake` imports everything when it loads.
        if self.waiting:
            self.read("wake", self.limits.load)
            if self.answered is not None:
                self.idle = time.perf_counter() - self.answered
        request: dict[str, Any] = {"do": "load", "bundle": str(bundle)}
        if self._choices:
            request["choices"] = list(self._choices)
        return self._loaded(self.answer(request, self.limits.load, gives_way=gives_way))

    def _loaded(self, answer: dict[str, Any]) -> LoadReport:
        """The report of the answer to `load`."""
        report = self.convert(self.require_success(answer), LoadReport)
        if report.protocol != VERSION:
            self.fail(
                "protocol",
                f"it speaks version {report.protocol} of the worker protocol, and this golow "
                f"version {VERSION}: docs/extend/protocol.md lists the changes",
            )
        self._require_choices()
        return report

    def _require_choices(self) -> None:
        """Raise `Unsupported` unless every alternative is in effect, so that no other setting is
        measured."""
        found = self.choices([choice for choice, _ in self._choices.values()])
        for name, (choice, value) in self._choices.items():
            if found.get(choice) != value:
                now = f"it is {found[choice]!r}" if choice in found else "it cannot be read there"
                raise Unsupported(
                    self.name, f"{name} is not in effect: {choice} should be {value!r}, and {now}"
                )

    def _patience(self, iterations: int) -> tuple[float, float | None]:
        """Seconds that iterations may take, and those that they should, if known. The limit is then
        a multiple of these: a worker that was stopped should not hold up others for minutes."""
        if not self._seconds_per_iteration:
            return self.limits.iteration, None
        expected = self._seconds_per_iteration * iterations
        return max(self.limits.block, PATIENCE * expected), expected

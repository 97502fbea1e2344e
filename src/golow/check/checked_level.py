"""Builds, loads and checks one level of a workload, for comparisons and training runs.

Any error becomes the level's verdict with a reason. Only Ctrl-C is raised, so one level's failure
never affects the figures of another.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Self

import msgspec

from golow.check.left_state import Steps
from golow.check.reference import Outputs, Standard
from golow.levels.ladder import ChosenLevel, Launch
from golow.levels.starter import Starter
from golow.measure.gpu.nvml import Card
from golow.measure.held_memory import HeldMemory
from golow.observer import Observer, Silent, notice
from golow.records.comparison import Check, Quantity, StepsCheck
from golow.records.errors import GolowError, Unsupported, WorkerFailure
from golow.records.record import Record
from golow.storage.cache import is_sealed, read_sealed, seal, write_sealed
from golow.worker.client import Worker
from golow.worker.process import reset_resident_peak
from golow.workload.bundle import Bundle

FIRST_ITERATIONS = 5


class _Built(Record, frozen=True, kw_only=True):
    """The seconds of a build that runs inside a loading worker; the file is next to its cache."""

    seconds: float


class CheckedLevel:
    """A level with its worker and its verdict; leaving the ``with`` block ends the worker.

    card: the GPU that the worker runs on, None on a CPU. known: the verdict of an earlier check;
    the check is then not repeated. timed: iterations will be timed, so their results are checked,
    too.
    """

    def __init__(
        self,
        choice: ChosenLevel,
        bundle: Bundle,
        cache: Path,
        starter: Starter,
        observer: Observer | None = None,
        *,
        card: Card | None = None,
        known: Check | None = None,
        timed: bool = False,
    ) -> None:
        self.choice, self.bundle, self.cache, self.starter = choice, bundle, cache, starter
        self.name = choice.name
        self.observer: Observer = observer or Silent()
        self.card = card
        self.check = known or Check(verdict="failed", reason="the run ended before this level")
        self.launch: Launch | None = None
        self.worker: Worker | None = None
        self.notes: list[str] = []
        self.log = bundle.capture_log if choice.level.from_graph else ""
        self.seconds: dict[str, float] = {}
        self.first_iterations: tuple[int, ...] = ()
        self.in_force: dict[str, str] = {}
        self._memory = HeldMemory(card)
        self._checked, self._timed = known is not None, timed
        self._refused = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def outputs(self, place: str) -> Outputs:
        """A function that runs the level for the check; the level loads on its first call.

        Call this before anything runs on the GPU: memory that the check itself holds there does
        not belong to the level.
        """
        self._memory.read_before()

        def written(batches: list[int], learning_rate: float, file: Path) -> None:
            self._loaded(place).outputs(batches, learning_rate, file)
            self.observer.stage("measuring the effect of rounding")

        return written

    def start(self, standard: Standard | None, allow_differs: bool, place: str) -> Worker | None:
        """Build, load and check the level, skipping what is done; returns the worker if the level
        may run, else None. A level that may not run is not tried again.

        standard: needed unless the verdict is known. place: for the observer, e.g. ``2 of 5``.
        """
        if self._refused:
            return None
        with self.recorded():
            worker = self._loaded(place)
            if standard is not None and not self._checked:
                self._judge(worker, standard, place)
            if self.check.verdict == "match" or (allow_differs and self.check.verdict == "differs"):
                for pid in worker.pids:
                    reset_resident_peak(pid)  # the check's own memory is not the level's
                self._memory.read_ready(worker)
                return worker
        self.close()
        self._refused = True
        return None

    def dismiss(self) -> None:
        """Ask the worker to end, if there is one, without waiting for it."""
        if self.worker is not None:
            self.worker.dismiss()

    def close(self) -> None:
        """End the worker, if there is one."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None
            self._memory.forget()

    def resident_bytes(self) -> int:
        """Resident set of the worker now; 0 without a worker."""
        return self.worker.resident_bytes().get("resident", 0) if self.worker else 0

    def device_bytes(self) -> int:
        """GPU memory of the worker now; 0 without a worker or if the driver does not report it."""
        return self._memory.on_device(self.worker)[1] if self.worker else 0

    def held_memory(self) -> Iterator[Quantity]:
        """Bytes that the worker holds now; empty without a worker."""
        if self.worker is not None:
            yield from self._memory.quantities(self.worker)

    def life(self) -> Iterator[Quantity]:
        """The level's costs before it runs steadily, as far as measured; seconds and bytes."""
        for name, seconds in self.seconds.items():
            yield Quantity(name=name, unit="s", value=seconds)
        if self.launch is not None and self.launch.artifact_bytes is not None:
            yield Quantity(name="artifact", unit="B", value=self.launch.artifact_bytes)
        if self.first_iterations:
            first = self.first_iterations[0] / 1e9
            yield Quantity(name="first_iteration", unit="s", value=first)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Turn an error inside the block into the level's verdict."""
        try:
            yield
        except Unsupported as error:
            self.check = Check(verdict="unavailable", reason=error.words)
        except GolowError as error:
            self.check = Check(verdict="failed", reason=f"{error.message} {error.hint}".strip())
        except WorkerFailure as error:
            self.fail(error)
        except Exception as error:  # an error in the level's own code is a result too
            reason = f"{type(error).__name__}: {error}"
            self.fail(WorkerFailure("failed", reason, traceback.format_exc()))

    def fail(self, failure: WorkerFailure) -> None:
        """Set the verdict to ``failed``, or to ``differs`` if that is what failed; a level that
        matched keeps the figures of its check."""
        verdict = "differs" if failure.kind == "differs" else "failed"
        self.check = msgspec.structs.replace(self.check, verdict=verdict, reason=failure.message)
        captured = self.bundle.capture_log if self.choice.level.from_graph else ""
        self.log = "\n".join(filter(None, (captured, failure.log)))

    def judge_timed(self, standard: Standard) -> str:
        """Why the whole result of timed iterations is not the reference's; empty if it is, or if
        the level did not match before. A worker that fails is found out by its next request."""
        if self.worker is None or self.check.verdict != "match":
            return ""
        try:
            found = standard.judge_timed(self.worker)
        except WorkerFailure as failure:
            self.fail(failure)
            return ""
        return "" if found.verdict == "match" else found.reason

    def judge_left(self, standard: Standard, eager: Worker, steps: Sequence[Steps]) -> str:
        """Why the state that the race left in a training run is not that of these steps; empty as
        above."""
        if self.worker is None or self.check.verdict != "match":
            return ""
        try:
            return standard.judge_left(self.worker, eager, steps)
        except WorkerFailure as failure:
            self.fail(failure)
            return ""

    # ------------------------------------------------------------ implementation

    def _loaded(self, place: str) -> Worker:
        """The worker; builds and loads it first if needed, and raises any error of these steps."""
        if self.launch is None:
            self.launch = self._build(place)
        if self.worker is None:
            self.observer.stage(f"{self.name} ({place}): loading")
            # Stored before loading, so that a worker that fails to load is closed too.
            self.worker = self._begun(self.launch)
            with self.starter.paused():
                self._load(self.worker, self.launch)
        return self.worker

    def _build(self, place: str) -> Launch:
        level = self.choice.level
        probe = level.probe_on(self.bundle.workload.device)
        if not probe.available:
            raise Unsupported(self.name, f"{probe.missing}; {probe.fix}")
        self.observer.stage(f"{self.name} ({place}): building")
        graph = self.bundle.graph if level.from_graph else None
        if graph is not None:
            self.seconds["capture"] = sum(done.seconds for done in graph.history)
        launch = self.choice.prepare(self.bundle, self.cache)
        if launch.built_by_loading is not None:
            launch = self._built_by_loading(launch, launch.built_by_loading)
        self.seconds["build"] = launch.build_seconds
        self.notes += launch.notes
        return launch

    def _built_by_loading(self, launch: Launch, built: Path) -> Launch:
        """Load once only to build, so that the later measurement is a warm start."""
        data = read_sealed(built, self.notes)
        cached = data is not None and (launch.sealed is None or is_sealed(launch.sealed))
        if data is None or not cached:
            turn = self.starter.turn
            alone = turn.alone() if launch.build_measures else nullcontext()
            with alone, self.starter.worker(self.name, launch, self.bundle) as builder:
                report = builder.build(self.bundle.folder)
            self.notes += report.notes
            data = msgspec.json.encode(_Built(seconds=report.phases.get("build", 0.0)))
            write_sealed(built, data)
            if launch.sealed is not None:
                seal(launch.sealed)
        seconds = msgspec.json.decode(data, type=_Built).seconds
        size = sum(f.stat().st_size for f in built.parent.rglob("*") if f.is_file())
        return launch._replace(build_seconds=seconds, cached=cached, artifact_bytes=size)

    def _begun(self, launch: Launch) -> Worker:
        if not self._memory.has_before:
            self._memory.read_before()
        return self.starter.worker(self.name, launch, self.bundle)

    def _load(self, worker: Worker, launch: Launch) -> None:
        """Load the workload and time the first iterations."""
        worker.on_delay, worker.on_busy = self.observer.stage, partial(notice, self.observer)
        report = worker.load(self.bundle.folder)
        ready = time.perf_counter() - worker.started - worker.idle
        building = 0.0 if launch.built_by_loading else report.phases.get("build", 0.0)
        self.seconds["build"] = self.seconds["build"] or building
        self.seconds["load"] = report.phases.get("load", 0.0)
        if (
            not self.starter.turn.is_shared
        ):  # if shared, the machine is busy and the start was early
            self.seconds["ready"] = ready - building
        self.notes = list(dict.fromkeys([*self.notes, *report.notes]))
        self.in_force = worker.choices(self.choice.readable(self.bundle.workload))
        if launch.artifact_bytes is None:
            self.launch = launch._replace(artifact_bytes=report.artifact_bytes)
        first = (worker.time(1, 0) for _ in range(FIRST_ITERATIONS))
        # On a device the host's time ends when the iteration is enqueued.
        self.first_iterations = tuple((sample.device_ns or sample.host_ns)[0] for sample in first)

    def _judge(self, worker: Worker, standard: Standard, place: str) -> None:
        self.observer.stage(f"{self.name} ({place}): checking")
        self.check, notes = standard.judge(worker.outputs)
        self.notes += notes
        self._checked = True
        if self.check.verdict in ("match", "differs"):
            self.check = _with_steps(self.check, standard.judge_steps(worker))
            if self.check.steps is None:
                self.check = msgspec.structs.replace(self.check, power=standard.power)
            elif self.check.verdict == "match":
                self.notes.append(self.check.steps.words)
        if self.check.verdict == "match" and self._timed:
            timed = standard.judge_timed(worker)
            if timed.verdict != "match":
                self.check = msgspec.structs.replace(
                    timed, reason=f"while it is timed: {timed.reason}"
                )
            elif same := standard.judge_masks(worker):
                self.check = msgspec.structs.replace(self.check, verdict="differs", reason=same)


def _with_steps(check: Check, steps: StepsCheck | None) -> Check:
    """The check with that of the operations. A level whose results match but not its operations
    differs; a level that differs states which operation is the first to be wrong."""
    if steps is None or not steps.wrong:
        return msgspec.structs.replace(check, steps=steps)
    reason = f"{check.reason}; {steps.words}" if check.reason else steps.words
    return msgspec.structs.replace(check, verdict="differs", reason=reason, steps=steps)

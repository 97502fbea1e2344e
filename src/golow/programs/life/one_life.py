"""Measures one life of a level, from the start of its process to its end, stage by stage; and what
another batch size costs a process that runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from golow.levels.ladder import ChosenLevel, Launch
from golow.levels.starter import Starter
from golow.measure.gpu.joules import Joules
from golow.measure.gpu.nvml import Card
from golow.measure.held_memory import HeldMemory
from golow.programs.life.capturing import time_capture
from golow.programs.life.life_record import CacheState, Change, Life, Stage
from golow.programs.life.settling import LEAST, settle
from golow.records.comparison import Check, Quantity
from golow.records.errors import WorkerFailure
from golow.worker.client import Worker
from golow.worker.protocol import LoadReport
from golow.worker.scheduling import ContentionMeter
from golow.worker.time_limits import Limits
from golow.workload.bundle import Bundle

SECONDS = 1.0
"""Iterations of a life take this long, if they are neither too few nor too many."""

FEWEST, MOST = 2 * LEAST, 1000

WHERE_CACHES_LIE = frozenset({"TORCHINDUCTOR_CACHE_DIR"})
"""Variables that only state where a worker keeps its builds: with another value it is still the
same program."""

Judge = Callable[[Worker], Check]
"""The check of a worker's present results."""


class Stages:
    """Seconds by stage; ``now`` is the one that runs, or ran last."""

    def __init__(self) -> None:
        self.seconds: dict[Stage, float] = {}
        self.now: str = "start"

    def add(self, stage: Stage, seconds: float) -> None:
        """Seconds that were measured elsewhere."""
        self.now = stage
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    @contextmanager
    def timed(self, stage: Stage) -> Iterator[None]:
        """A block that is this stage, or a part of it."""
        self.now, began = stage, time.perf_counter()
        yield
        self.add(stage, time.perf_counter() - began)


class _Lived(NamedTuple):
    """Results of a worker's life besides its stages."""

    iterations: tuple[int, ...]
    settled_after: int | None
    figures: list[Quantity]


class Subject:
    """A level whose lives are measured.

    iteration: approximate seconds of an iteration; None if unknown. ``stages`` states where the
    current life is, for the report of a failure.
    """

    def __init__(
        self,
        choice: ChosenLevel,
        starter: Starter,
        limits: Limits,
        *,
        card: Card | None,
        iteration: float | None,
    ) -> None:
        self.choice, self._starter, self._limits = choice, starter, limits
        self._card, self._iteration = card, iteration
        self.stages = Stages()

    def cold(self, bundle: Bundle, cache: Path, round: int, judge: Judge) -> tuple[Life, Launch]:
        """A life with that empty folder as cache, and how to start the next one. Raises what a
        level raises."""
        stages = self.stages = Stages()
        joules = Joules(self._card)
        launch = self._built(bundle, cache, stages, whole_capture=True)
        found = self._live(bundle, launch, stages, joules, judge)
        disk = Quantity(name="disk", unit="B", value=_bytes_in(cache))
        return self._life("cold", round, stages, found, [disk]), launch

    def built(self, bundle: Bundle, cache: Path) -> Launch:
        """How to start the level from a cache that a comparison has filled."""
        return self.choice.prepare(bundle, cache)

    def warm(
        self, bundle: Bundle, launch: Launch, round: int, judge: Judge, setting: str = ""
    ) -> Life:
        """A life from what an earlier one built. setting: NAME=VALUE to add to its environment."""
        stages = self.stages = Stages()
        joules = Joules(self._card)
        found = self._live(bundle, with_setting(launch, setting), stages, joules, judge)
        return self._life("warm", round, stages, found, [], setting)

    def changed(
        self, old: Bundle, launch: Launch, new: Bundle, cache: Path, round: int, judge: Judge
    ) -> Change:
        """Let a steady process run another batch size: the level prepares it, and the worker loads
        it if its program can; else a new worker does. judge: for the new size."""
        stages = self.stages = Stages()
        with self._worker(old, launch) as worker:
            worker.load(old.folder)
            self._iterate(worker)
            prepared = self._built(new, cache, stages, whole_capture=False)
            same = same_program(launch, prepared)
            if same:
                stages.now = "load"
                report = worker.load(new.folder)
                for stage in ("capture", "build"):  # the weights and the process stay
                    stages.add(stage, _phase(report, stage))
                found = self._settled(worker, stages)
                require_match(judge(worker))
        if not same:
            with self._worker(new, prepared) as other:
                self._ready(other, new, stages)
                found = self._settled(other, stages)
                require_match(judge(other))
        iterations, after = found
        return Change(
            round=round,
            batch=new.workload.batch,
            same_process=same,
            seconds=stages.seconds,
            iterations=iterations,
            settled_after=after,
        )

    # ------------------------------------------------------------ the parts of a life

    def _built(self, bundle: Bundle, cache: Path, stages: Stages, *, whole_capture: bool) -> Launch:
        """Capture and build. whole_capture: with the start of a process that captures; else
        a program that changes the batch is already running."""
        if self.choice.level.from_graph:
            stages.now = "capture"
            captured = time_capture(bundle, self._limits.load)
            stages.add("capture", captured.whole if whole_capture else captured.alone)
        with stages.timed("build"):
            return self.choice.prepare(bundle, cache)

    def _live(
        self, bundle: Bundle, launch: Launch, stages: Stages, joules: Joules, judge: Judge
    ) -> _Lived:
        memory = HeldMemory(self._card)
        memory.read_before()
        with self._worker(bundle, launch) as worker:
            meter = ContentionMeter(worker.pid)
            report = self._ready(worker, bundle, stages)
            iterations, after = self._settled(worker, stages)
            waited = ContentionMeter.wait_share(0, meter.read(), _age_ns(worker))
            memory.read_ready(worker)
            figures = list(memory.quantities(worker))
            stages.now = "check"
            require_match(judge(worker))
            stages.now = "end"
            stages.add("end", worker.end())
        figures += joules.spent()
        if waited is not None:
            figures.append(Quantity(name="wait_share", unit="", value=waited))
        artifact = launch.artifact_bytes or report.artifact_bytes
        if artifact is not None:
            figures.append(Quantity(name="artifact", unit="B", value=artifact))
        return _Lived(iterations, after, figures)

    def _ready(self, worker: Worker, bundle: Bundle, stages: Stages) -> LoadReport:
        """Import and load; capture and build in the worker are separate stages."""
        stages.now = "import"
        stages.add("import", worker.import_all(bundle.workload.mode))
        stages.now, began = "load", time.perf_counter()
        report = worker.load(bundle.folder)
        whole = time.perf_counter() - began
        capture, build = _phase(report, "capture"), _phase(report, "build")
        stages.add("capture", capture)
        stages.add("build", build)
        stages.add("load", max(0.0, whole - capture - build))
        return report

    def _settled(self, worker: Worker, stages: Stages) -> tuple[tuple[int, ...], int | None]:
        """The iterations, and after how many they settled."""
        stages.now = "first_iteration"
        iterations = self._iterate(worker)
        settled = settle(iterations)
        stages.add("first_iteration", iterations[0] / 1e9)
        stages.add("settling", settled.extra)
        stages.add("steady_iteration", settled.steady)
        return iterations, settled.after

    def _iterate(self, worker: Worker) -> tuple[int, ...]:
        """The first iteration alone, and then those that it settles in without a pause between
        them, each in nanoseconds. On a device they are by its clock, which includes what the host
        does before it enqueues an iteration."""
        first = worker.time(1, 0)
        times = first.device_ns or first.host_ns
        each = self._iteration or times[0] / 1e9
        rest = worker.time(min(max(FEWEST, math.ceil(SECONDS / each)), MOST), 0)
        return (*times, *(rest.device_ns or rest.host_ns))

    def _worker(self, bundle: Bundle, launch: Launch) -> Worker:
        return self._starter.worker(self.choice.name, launch, bundle)

    def _life(
        self,
        cache: CacheState,
        round: int,
        stages: Stages,
        found: _Lived,
        figures: list[Quantity],
        setting: str = "",
    ) -> Life:
        return Life(
            cache=cache,
            round=round,
            setting=setting,
            seconds=stages.seconds,
            iterations=found.iterations,
            settled_after=found.settled_after,
            figures=(*figures, *found.figures),
        )


def with_setting(launch: Launch, setting: str) -> Launch:
    """The launch with NAME=VALUE in its environment; the same for an empty setting."""
    if not setting:
        return launch
    name, _, value = setting.partition("=")
    return launch._replace(environment={**launch.environment, name: value})


def same_program(running: Launch, wanted: Launch) -> bool:
    """True if a process of the one launch can load what the other one is for."""

    def environment(launch: Launch) -> dict[str, str]:
        return {k: v for k, v in launch.environment.items() if k not in WHERE_CACHES_LIE}

    return running.command == wanted.command and environment(running) == environment(wanted)


def require_match(check: Check) -> None:
    """Raise WorkerFailure unless what was timed computes the right numbers."""
    if check.verdict != "match":
        # The reader of this text puts `failed` in front of it.
        said = check.reason if check.verdict == "failed" else f"{check.verdict}: {check.reason}"
        raise WorkerFailure(check.verdict, said)


def _phase(report: LoadReport, name: str) -> float:
    return report.phases.get(name, 0.0)


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _age_ns(worker: Worker) -> int:
    return round((time.perf_counter() - worker.started) * 1e9)

"""Profiles a workload at every level: first the check and a short race, then, in separate
workers, steps under a profiler. Timed iterations are never profiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from golow.levels.ladder import ChosenLevel
from golow.levels.level_selection import choices, require_any
from golow.levels.starter import Starter
from golow.lower.analysis.arithmetic import work_by_layer
from golow.measure.peak import Peak, measured_peak
from golow.observer import Observer
from golow.programs.comparison.compare import compare
from golow.programs.comparison.settings import ComparisonSettings
from golow.programs.profiling.advice import findings
from golow.programs.profiling.allocations import memory_of_trace
from golow.programs.profiling.arena import memory_of_plan
from golow.programs.profiling.communication import communication
from golow.programs.profiling.copies import copy_times
from golow.programs.profiling.divided import write_divided
from golow.programs.profiling.idle import idle_times
from golow.programs.profiling.in_turn import in_turn
from golow.programs.profiling.kernels import gpu_summary, kernel_times
from golow.programs.profiling.layers import layers_on_device
from golow.programs.profiling.memory import MemoryProfile
from golow.programs.profiling.operators import operator_times
from golow.programs.profiling.profile_record import LevelProfile, Profile
from golow.programs.profiling.roofline import step_rate
from golow.programs.profiling.same_kernels import with_layers_of
from golow.programs.profiling.summary import execution_summary
from golow.programs.profiling.timeline import TIMELINE, timeline
from golow.programs.profiling.trace import Trace, read_trace
from golow.records.comparison import LayerTime, Run
from golow.records.errors import GolowError, Unsupported, WorkerFailure
from golow.storage.cache import open_cache
from golow.storage.names import shortened
from golow.storage.scratch import scratch_folder
from golow.worker.client import Worker
from golow.worker.protocol import ArenaReport
from golow.worker.ranks import rank_file
from golow.worker.tracing import write_events
from golow.worker.turn import Turn
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.graph_capture import write_graph
from golow.workload.prepare import prepare
from golow.workload.request import Request

MOST_STEPS = 1000  # their trace is held in memory


@dataclass(frozen=True, kw_only=True)
class ProfileSettings:
    """levels, workers, cache: as of a comparison. steps: profiled iterations. time_limit: of the
    race without a profiler, in seconds. by_shape: tell operators apart by the shapes of their
    inputs. traces: an existing folder that keeps the traces; None keeps none. turn: this profile's
    place among those that share a GPU."""

    levels: Sequence[str] | None = None
    workers: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    steps: int = 5
    time_limit: float = 10.0
    by_shape: bool = False
    traces: Path | None = None
    cache: Path | None = None
    turn: Turn | None = None


def profile(request: Request, settings: ProfileSettings, observer: Observer) -> Profile:
    """Check, time and profile the workload at every level.

    Raises `GolowError` for errors that the caller can fix. An error in a level is recorded as its
    result. After Ctrl-C the profile has the levels so far, and is marked ``interrupted``; without
    any, KeyboardInterrupt is raised.
    """
    if settings.steps < 1:
        raise GolowError(f"--steps {settings.steps} profiles nothing", "use --steps 5 or so.")
    if settings.steps > MOST_STEPS:
        raise GolowError(
            f"the trace of {settings.steps:,} steps is too large", f"use --steps 1 to {MOST_STEPS}."
        )
    comparison = compare(
        request,
        ComparisonSettings(
            levels=settings.levels,
            workers=settings.workers,
            time_limit=settings.time_limit,
            by_layer=True,
            brief=True,
            cache=settings.cache,
            turn=settings.turn,
        ),
        observer,
    )
    if comparison.race.stopped_because == "interrupted":
        raise KeyboardInterrupt
    ranks = request.ranks
    chosen = choices(settings.levels, settings.workers, request.mode, request.device, ranks)
    require_any(settings.levels, chosen, request.device)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        starter = stack.enter_context(Starter(turn=settings.turn, ranks=ranks))
        prepared = prepare(request, starter.turn.beside())
        bundle, prepared = write_bundle(prepared, folder / "bundle")
        write_graph(prepared, bundle)
        profiler = _Profiler(bundle, settings, starter, settings.traces or folder)
        levels: list[LevelProfile] = []
        checked = zip(chosen, comparison.runs, strict=True)
        whole = in_turn(checked, levels, profiler.profile, "profiling", observer)
        if settings.traces is not None:
            write_events(timeline(profiler.traces), settings.traces / TIMELINE)
        found = Profile(
            workload=comparison.workload,
            levels=tuple(levels),
            environment=comparison.runs[0].environment,
            work=() if bundle.graph is None else work_by_layer(bundle.graph),
            interrupted=not whole,
        )
        return found if not whole else _concluded(found, open_cache(settings.cache), observer)


def _concluded(found: Profile, cache: Path, observer: Observer) -> Profile:
    """The profile with the machine's peak and what to do about it."""
    try:
        observer.stage("measuring the machine's peak")
        found = msgspec.structs.replace(found, peak=_peak(found, cache))
    except KeyboardInterrupt:
        return msgspec.structs.replace(found, interrupted=True)
    return msgspec.structs.replace(found, findings=findings(found))


def _peak(found: Profile, cache: Path) -> Peak | None:
    """The peak of the machine, which no level exceeded."""
    workload = found.workload
    seen = max((step_rate(found, level) or 0.0 for level in found.levels), default=0.0)
    return measured_peak(workload.device, workload.precision, workload.threads, cache, seen)


class _Profiler:
    """Profiles one level after the other; keeps their traces, by level."""

    def __init__(
        self, bundle: Bundle, settings: ProfileSettings, starter: Starter, folder: Path
    ) -> None:
        self._bundle, self._settings, self._starter = bundle, settings, starter
        self._folder = folder
        self.traces: dict[str, Trace] = {}

    def profile(self, choice: ChosenLevel, run: Run) -> LevelProfile:
        """The level's profile; without one it states why."""
        found = LevelProfile(
            level=run.level,
            verdict=run.check.verdict,
            reason=run.check.reason,
            time=run.time,
            layers=run.layers,
            layers_missing=run.layers_missing,
            worst=run.check.worst if run.check.verdict == "match" else None,
        )
        if run.time is None:
            return found
        file = self._folder / f"{shortened(run.level.replace(':', '-'))}.trace.json"
        try:
            arena = self._record(choice, run.level, file)
            ranks = range(self._bundle.workload.ranks)
            trace, *others = (read_trace(rank_file(file, rank)) for rank in ranks)
        except Unsupported as error:
            return msgspec.structs.replace(found, missing=error.reason)
        except (WorkerFailure, GolowError) as error:
            return msgspec.structs.replace(found, missing=error.message)
        if self.traces:  # eager's is the first, and knows its layers
            trace = with_layers_of(trace, next(iter(self.traces.values())))
        self.traces[run.level] = trace
        exchanged = communication([trace, *others])
        found = msgspec.structs.replace(found, communication=exchanged)
        return self._described(found, trace, arena, file)

    def _record(self, choice: ChosenLevel, name: str, file: Path) -> ArenaReport | None:
        """Write the level's trace; returns the plan of its memory, if it has one."""
        cache = open_cache(self._settings.cache)
        launch = choice.prepare(self._bundle, cache)
        with self._starter.worker(name, launch, self._bundle) as worker:
            worker.load(self._bundle.folder)
            with self._starter.turn.alone():
                worker.time(3, 2)
                _write_trace(worker, self._settings.steps, file, self._bundle)
            return _arena(worker)

    def _described(
        self, found: LevelProfile, trace: Trace, arena: ArenaReport | None, file: Path
    ) -> LevelProfile:
        """The level's profile with what its trace and its plan say."""
        seconds = sum(step.nanoseconds for step in trace.steps) / 1e9 / len(trace.steps)
        memory, memory_missing = _memory(trace, arena, found.layers, self._bundle)
        return msgspec.structs.replace(
            found,
            profiled=seconds,
            steps=len(trace.steps),
            summary=execution_summary(trace),
            gpu=gpu_summary(trace),
            idle=idle_times(trace),
            kernels=kernel_times(trace),
            copies=copy_times(trace),
            layers=layers_on_device(trace, found.layers) or found.layers,
            operators=operator_times(trace, by_shape=self._settings.by_shape),
            memory=memory,
            memory_missing=memory_missing,
            trace=file.name if self._settings.traces else "",
        )


def _write_trace(worker: Worker, steps: int, file: Path, bundle: Bundle) -> None:
    """By the worker's profiler, or else from the times of its steps; of several ranks one each."""
    try:
        worker.profile(steps, file)
    except Unsupported:
        for rank, layers in enumerate(worker.layers(steps).ranks):
            own = rank_file(file, rank)
            write_divided(layers, own, on_device=bundle.workload.device == "cuda")


def _arena(worker: Worker) -> ArenaReport | None:
    """The plan of the worker's memory, if it has one."""
    try:
        return worker.arena()
    except Unsupported:
        return None


def _memory(
    trace: Trace, arena: ArenaReport | None, layers: Sequence[LayerTime], bundle: Bundle
) -> tuple[MemoryProfile | None, str]:
    """The memory over a step, or why there is none."""
    if arena is not None:
        return memory_of_plan(arena, trace, layers), ""
    try:
        return memory_of_trace(trace, on_device=bundle.workload.device == "cuda"), ""
    except Unsupported as error:
        return None, error.reason

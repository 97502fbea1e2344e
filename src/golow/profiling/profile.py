"""Profiles a workload at every level: first the check and a short race, then, in workers of their
own, steps under a profiler. What is timed is never profiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from golow.cache import open_cache
from golow.comparison.compare import compare
from golow.comparison.settings import ComparisonSettings
from golow.levels.choices import choices
from golow.levels.ladder import Choice
from golow.levels.starter import Starter
from golow.lower.work import work_by_layer
from golow.measure.peak import measured_peak
from golow.observer import Observer
from golow.profiling.advice import findings
from golow.profiling.allocations import memory_of_trace
from golow.profiling.arena import memory_of_plan
from golow.profiling.copies import copy_times
from golow.profiling.divided import write_divided
from golow.profiling.idle import idle_times
from golow.profiling.kernels import gpu_summary, kernel_times
from golow.profiling.layers import layers_on_device
from golow.profiling.memory import MemoryProfile
from golow.profiling.operators import operator_times
from golow.profiling.record import LevelProfile, Profile
from golow.profiling.same_kernels import with_layers_of
from golow.profiling.summary import execution_summary
from golow.profiling.trace import Trace, read_trace
from golow.record import GolowError, Run, Unsupported, WorkerFailure
from golow.scratch import scratch_folder
from golow.worker.client import Worker
from golow.worker.protocol import ArenaReport
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.captured import write_graph
from golow.workload.prepare import prepare
from golow.workload.request import Request


@dataclass(frozen=True, kw_only=True)
class ProfileSettings:
    """levels, workers, cache: as of a comparison. steps: profiled iterations. time_limit: of the
    race without a profiler, in seconds. by_shape: tell operators apart by the shapes of their
    inputs. traces: an existing folder that keeps the traces; None keeps none."""

    levels: Sequence[str] | None = None
    workers: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    steps: int = 5
    time_limit: float = 10.0
    by_shape: bool = False
    traces: Path | None = None
    cache: Path | None = None


def profile(request: Request, settings: ProfileSettings, observer: Observer) -> Profile:
    """Check, time and profile the workload at every level.

    Raises `GolowError` for errors that the caller can fix. An error in a level is that level's
    result. After Ctrl-C nothing is returned.
    """
    if settings.steps < 1:
        raise GolowError(f"--steps {settings.steps} profiles nothing", "use --steps 5 or so.")
    comparison = compare(
        request,
        ComparisonSettings(
            levels=settings.levels,
            workers=settings.workers,
            time_limit=settings.time_limit,
            by_layer=True,
            brief=True,
            cache=settings.cache,
        ),
        observer,
    )
    if comparison.race.stopped_because == "interrupted":
        raise KeyboardInterrupt
    chosen = choices(settings.levels, settings.workers, request.mode, request.device)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        starter = stack.enter_context(Starter())
        prepared = prepare(request)
        bundle, prepared = write_bundle(prepared, folder / "bundle")
        write_graph(prepared, bundle)
        levels, model = [], None
        for choice, run in zip(chosen, comparison.runs, strict=True):
            observer.stage(f"{run.level}: profiling")
            found, trace = _profiled(choice, run, bundle, settings, starter, folder, model)
            levels.append(found)
            model = model or trace  # eager is the first
        observer.stage("measuring the machine's peak")
        workload, cache = comparison.workload, open_cache(settings.cache)
        done = Profile(
            workload=workload,
            levels=tuple(levels),
            environment=comparison.runs[0].environment,
            work=() if bundle.graph is None else work_by_layer(bundle.graph),
            peak=measured_peak(workload.device, workload.precision, workload.threads, cache),
        )
        return msgspec.structs.replace(done, findings=findings(done))


def _profiled(
    choice: Choice,
    run: Run,
    bundle: Bundle,
    settings: ProfileSettings,
    starter: Starter,
    folder: Path,
    model: Trace | None,
) -> tuple[LevelProfile, Trace | None]:
    """The level's profile and trace. model: the trace of a level that knows its layers."""
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
        return found, None
    file = (settings.traces or folder) / f"{run.level.replace(':', '-')}.trace.json"
    try:
        launch = choice.level.prepare(bundle, choice.variant, open_cache(settings.cache))
        with starter.worker(run.level, launch, bundle) as worker:
            worker.load(bundle.folder)
            worker.time(3, 2)
            _write_trace(worker, settings.steps, file, bundle)
            arena = _arena(worker)
        trace = read_trace(file)
    except Unsupported as error:
        return msgspec.structs.replace(found, missing=error.reason), None
    except (WorkerFailure, GolowError) as error:
        return msgspec.structs.replace(found, missing=error.message), None
    if model is not None:
        trace = with_layers_of(trace, model)
    seconds = sum(step.nanoseconds for step in trace.steps) / 1e9 / len(trace.steps)
    memory, memory_missing = _memory(trace, arena, run, bundle)
    done = msgspec.structs.replace(
        found,
        profiled=seconds,
        steps=len(trace.steps),
        summary=execution_summary(trace),
        gpu=gpu_summary(trace),
        idle=idle_times(trace),
        kernels=kernel_times(trace),
        copies=copy_times(trace),
        layers=layers_on_device(trace, run.layers) or run.layers,
        operators=operator_times(trace, by_shape=settings.by_shape),
        memory=memory,
        memory_missing=memory_missing,
        trace=file.name if settings.traces else "",
    )
    return done, trace


def _write_trace(worker: Worker, steps: int, file: Path, bundle: Bundle) -> None:
    """By the worker's profiler, or else from the times of its steps."""
    try:
        worker.profile(steps, file)
    except Unsupported:
        layers = worker.layers(steps).steps
        write_divided(layers, file, on_device=bundle.workload.device == "cuda")


def _arena(worker: Worker) -> ArenaReport | None:
    """The plan of the worker's memory, if it has one."""
    try:
        return worker.arena()
    except Unsupported:
        return None


def _memory(
    trace: Trace, arena: ArenaReport | None, run: Run, bundle: Bundle
) -> tuple[MemoryProfile | None, str]:
    """The memory over a step, or why there is none."""
    if arena is not None:
        return memory_of_plan(arena, trace, run.layers), ""
    try:
        return memory_of_trace(trace, on_device=bundle.workload.device == "cuda"), ""
    except Unsupported as error:
        return None, error.reason

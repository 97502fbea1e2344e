"""Time of each step of a level's plan beside the least possible time on this machine: the
next thing to improve is the first row.

The roof is that of a profile's roofline: the machine's measured peaks of arithmetic and of moving
bytes. Williams, Waterman and Patterson, "Roofline", https://doi.org/10.1145/1498765.1498785
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from golow.levels import ladder
from golow.levels.nvidia.known_gpus import named
from golow.lower.analysis.arithmetic import step_operations
from golow.lower.plan.memory_traffic import moved_bytes, moves_only
from golow.lower.plan.plan import Plan, Step
from golow.measure.environment import environment
from golow.measure.peak import Peak, measured_peak
from golow.observer import Observer
from golow.programs.comparison.compare import compare
from golow.programs.comparison.settings import ComparisonSettings
from golow.programs.explain.explain_record import FORMAT_VERSION, Roof, StepRoof
from golow.programs.explain.show_lowering import lower, require_plan_for
from golow.records.comparison import LayerTime, Run
from golow.records.errors import GolowError
from golow.records.workload import Workload
from golow.storage.cache import open_cache
from golow.worker.turn import Turn
from golow.workload.prepare import prepare, prepare_for_absent
from golow.workload.request import Request


@dataclass(frozen=True, kw_only=True)
class RoofSettings:
    """level: one that has a plan. measure: whether to time the steps. time_limit: of the race
    before that, in seconds. cache: folder for builds; golow's own by default. turn: among those
    that share a GPU. gpu: the name of a known GPU that may be missing here; then nothing is
    measured."""

    level: str
    measure: bool = True
    time_limit: float = 10.0
    cache: Path | None = None
    turn: Turn | None = None
    gpu: str = ""


def roof(request: Request, settings: RoofSettings, observer: Observer) -> Roof:
    """Compare the level with eager, time its steps, and set each against the machine's roof.

    Raises `GolowError` for errors that the caller can fix: a level without a plan, one that does
    not match or cannot run here, and a peak that cannot be measured.
    """
    if settings.gpu:
        return _published_roof(request, settings, observer)
    name = with_plan(settings.level, request).name
    run = _measured(request, settings, observer) if settings.measure else None
    observer.stage("building the plan")
    prepared = prepare(request)
    plan = lower(prepared, settings.level, settings.cache).plan
    assert plan is not None  # noqa: S101 - as _with_plan states
    seconds = _seconds(plan, run)
    time = None if run is None or run.time is None else run.time.value
    observer.stage("measuring the machine's peak")
    with (settings.turn or Turn()).alone():
        peak = _peak(prepared.workload, plan, time, open_cache(settings.cache))
    return Roof(
        format_version=FORMAT_VERSION,
        workload=prepared.workload,
        level=name,
        peak=peak,
        steps=_ordered(plan, peak, seconds),
        environment=environment() if run is None else run.environment,
        time=None if run is None else run.time,
        life=() if run is None else run.life,
        build_cached=run is not None and run.build_cached,
        notes=() if run is None else run.notes,
    )


def plan_roof(
    plan: Plan,
    workload: Workload,
    level: str,
    seconds: Mapping[int, float],
    cache: Path,
    observer: Observer,
) -> Roof:
    """Set each step of a plan against the machine's roof. seconds: what steps take, by position;
    empty if they were not measured. Raises `GolowError` for a peak that cannot be measured."""
    observer.stage("measuring the machine's peak")
    peak = _peak(workload, plan, sum(seconds.values()) or None, cache)
    return Roof(
        format_version=FORMAT_VERSION,
        workload=workload,
        level=level,
        peak=peak,
        steps=_ordered(plan, peak, seconds),
        environment=environment(),
    )


def step_roof(plan: Plan, position: int, peak: Peak, seconds: float | None) -> StepRoof:
    """The step at a position of the plan under the machine's roof."""
    step = plan.steps[position]
    moved, operations = moved_bytes(plan, step), step_operations(step)
    moving, computing = moved / peak.bytes, operations / peak.operations
    return StepRoof(
        position=position,
        operation=step.operation,
        modules=step.modules,
        phase=step.phase,
        by=step.implementation,
        operations=operations,
        bytes=moved,
        layout_alone=moves_only(step),
        bound="memory" if moving >= computing else "arithmetic",
        least=max(moving, computing),
        seconds=seconds,
    )


# ---------------------------------------------------------------- implementation


def _published_roof(request: Request, settings: RoofSettings, observer: Observer) -> Roof:
    """The roof that the GPU's published figures give."""
    gpu = named(settings.gpu)
    choice = ladder.choose(settings.level, request.mode, request.device)
    require_plan_for(choice, settings.gpu)
    observer.stage("preparing the workload")
    prepared = prepare_for_absent(request)
    observer.stage("building the plan")
    plan = lower(prepared, settings.level, settings.cache, gpu=settings.gpu).plan
    assert plan is not None  # noqa: S101 - as require_plan_for states
    peak = Peak(operations=gpu.operations(request.precision), bytes=gpu.bandwidth)
    return Roof(
        format_version=FORMAT_VERSION,
        workload=prepared.workload,
        level=choice.name,
        peak=peak,
        steps=_ordered(plan, peak, {}),
        environment=environment(),
        gpu=gpu.title,
    )


def with_plan(name: str, request: Request) -> ladder.ChosenLevel:
    """The level of that name. Raises `GolowError` if it has no plan."""
    chosen = ladder.choose(name, request.mode, request.device)
    if chosen.level.plan is None:
        known = ", ".join(level.name for level in ladder.LADDER if level.plan is not None)
        raise GolowError(f"{name} has no plan, so it has no steps", f"levels: {known}.")
    return chosen


def _measured(request: Request, settings: RoofSettings, observer: Observer) -> Run:
    """The level's run, with the times of its steps."""
    comparison = compare(
        request,
        ComparisonSettings(
            levels=[settings.level],
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
    run = comparison.runs[-1]
    if run.check.verdict != "match":
        raise GolowError(
            f"{run.level}: {run.check.verdict}: {run.check.words}",
            "--no-measure shows the bytes and operations of its steps.",
        )
    if not run.layers:
        raise GolowError(f"{run.level}: its steps have no times: {run.layers_missing}")
    return run


def _seconds(plan: Plan, run: Run | None) -> dict[int, float]:
    """The median time of each step, by position. Raises `GolowError` if the plan that ran has other
    steps."""
    if run is None:
        return {}
    steps = _main(plan)
    if [_key(plan.steps[position]) for position in steps] != [_key(layer) for layer in run.layers]:
        raise GolowError(
            f"{run.level}: the plan that ran has different steps from the one built here",
            "set OMP_NUM_THREADS to the number of --threads, which the library follows.",
        )
    return {
        position: median(layer.ns) / 1e9 for position, layer in zip(steps, run.layers, strict=True)
    }


def _main(plan: Plan) -> list[int]:
    """The positions of the steps of an iteration."""
    return [position for position, step in enumerate(plan.steps) if not step.once]


def _key(step: Step | LayerTime) -> tuple[str, tuple[str, ...], str]:
    return step.operation, step.modules, step.phase


def _peak(workload: Workload, plan: Plan, time: float | None, cache: Path) -> Peak:
    """The peak of the machine, which a plan of this many seconds did not exceed."""
    operations = sum(step_operations(plan.steps[position]) for position in _main(plan))
    seen = operations / time if time else 0.0
    peak = measured_peak(workload.device, workload.precision, workload.threads, cache, seen)
    if peak is None:
        raise GolowError(
            "the machine's peak could not be measured",
            f"python -m golow.measure.peak {workload.device} {workload.precision} "
            f"{workload.threads} prints why.",
        )
    return peak


def _ordered(plan: Plan, peak: Peak, seconds: Mapping[int, float]) -> tuple[StepRoof, ...]:
    """The steps of an iteration: those that lose most time first."""
    found = [step_roof(plan, p, peak, seconds.get(p)) for p in _main(plan)]
    return tuple(sorted(found, key=_order))


def _order(step: StepRoof) -> tuple[float, int]:
    return -(step.least if step.lost is None else step.lost), step.position

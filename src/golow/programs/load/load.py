"""A load test as a whole: build and check each level, then test them in turn.

`load_test` reads as the table of contents. Ctrl-C keeps the partial results. A failure of a level
is recorded as its result, and the others continue.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version

from golow.compiled.callable_levels import LEVELS, is_callable
from golow.levels import ladder
from golow.levels.level_selection import require_any
from golow.measure.environment import environment_of
from golow.measure.gpu.nvml import Card
from golow.observer import Observer
from golow.programs.load import service
from golow.programs.load.cores import divided
from golow.programs.load.level_under_load import Place
from golow.programs.load.load_record import LoadPlan, LoadTest
from golow.programs.load.proof import Proof
from golow.programs.load.samples import drawn_lengths
from golow.programs.load.service_answers import ServiceProof
from golow.programs.load.settings import LoadSettings, plan_of, require_loadgen
from golow.programs.load.tested_level import TestedLevel
from golow.programs.load.turns import Turns
from golow.records.errors import GolowError
from golow.records.workload import Device, Workload
from golow.storage.cache import open_cache
from golow.storage.names import LONGEST_PART, file_name
from golow.storage.scratch import scratch_folder
from golow.worker.time_limits import Limits
from golow.workload.bundle import write_bundle
from golow.workload.prepare import Prepared, prepare
from golow.workload.request import Request

CORES_TO_BUILD = 4  # for each level that is built at a time
NO_ENERGY = "no run was long enough, or the counters (NVML, RAPL) cannot be read"


def load_test(request: Request, settings: LoadSettings, observer: Observer) -> LoadTest:
    """Test the levels and record the results of each. After Ctrl-C the record has the partial
    results. Raises `GolowError` for errors that the caller can fix.
    """
    plan = plan_of(settings, request.seed)
    names = [] if plan.url and settings.levels is None else _names(settings.levels, request)
    require_loadgen()
    created = datetime.now(UTC)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        card = stack.enter_context(Card()) if request.device == "cuda" else None
        observer.stage("preparing the workload")
        prepared = prepare(_sized(request, plan))
        _require_deterministic(prepared)
        bundle, prepared = write_bundle(prepared, folder / "bundle")
        lengths = None
        if plan.lengths is not None:
            observer.stage("checking that padding changes nothing")
            lengths = drawn_lengths(bundle, plan.lengths, plan.length_buckets, plan.seed)
        observer.stage("computing the float64 reference")
        proof = Proof(bundle, folder, lengths)
        place = Place(
            bundle,
            folder,
            plan,
            divided(sorted(os.sched_getaffinity(0)), request.threads * max(plan.contexts)),
            proof.count,
            open_cache(settings.cache),
            Limits(),
            card,
            lengths,
        )
        levels = [
            TestedLevel(name, place, proof, contexts)
            for name in names
            for contexts in plan.contexts
        ]
        if plan.url:
            outside = place._replace(command=service.command(plan.url, plan.patience))
            judge = ServiceProof(proof)
            levels += [TestedLevel(service.NAME, outside, judge, n) for n in plan.contexts]
        for level in levels:
            stack.enter_context(level)
        interrupted = loaded(levels, plan, observer)
        found = prepared.workload, prepared.notes
        return recorded(*found, place, levels, created, interrupted)


def recorded(
    workload: Workload,
    notes: tuple[str, ...],
    place: Place,
    levels: Sequence[TestedLevel],
    created: datetime,
    interrupted: bool,
) -> LoadTest:
    """The record of the levels so far. notes: on the model."""
    return LoadTest(
        id=f"{created:%Y%m%d-%H%M%S}-{file_name(workload.model, LONGEST_PART)}-load",
        created=created.isoformat(timespec="seconds"),
        workload=workload,
        environment=environment_of(workload.source, workload.threads),
        plan=place.plan,
        levels=tuple(level.record() for level in levels),
        samples=place.samples,
        generator=f"LoadGen {version('mlcommons-loadgen')}",
        generator_cores=place.cores.generator,
        shared=place.cores.shared,
        energy_missing="" if any(level.has_energy for level in levels) else NO_ENERGY,
        notes=notes,
        interrupted=interrupted,
    )


def loaded(levels: Sequence[TestedLevel], plan: LoadPlan, observer: Observer) -> bool:
    """Check the levels, test them in turn and end them; true after Ctrl-C."""
    try:
        _build(levels, observer)
        for number, level in enumerate(levels, 1):
            level.prove(f"{number} of {len(levels)}", observer)
        turns = Turns(levels, plan, observer)
        turns.take()
        if "server" in plan.scenarios and not plan.rates:
            turns.search()
        for level in levels:  # here, so that Ctrl-C while they end loses nothing
            level.end()
    except KeyboardInterrupt:
        return True
    return False


def _build(levels: Sequence[TestedLevel], observer: Observer) -> None:
    """Build all levels, several at a time where there are cores for them: compilers leave most of
    them idle."""
    at_a_time = max(1, len(os.sched_getaffinity(0)) // CORES_TO_BUILD)
    if at_a_time == 1:
        for number, level in enumerate(levels, 1):
            observer.stage(f"{level.name} ({number} of {len(levels)}): building")
            level.start()
            level.build()
        return
    observer.stage(f"building {', '.join(level.name for level in levels)}")
    for level in levels:
        level.start()
    with ThreadPoolExecutor(at_a_time) as pool:
        try:
            for building in [pool.submit(level.build) for level in levels]:
                building.result()
        except BaseException:  # Ctrl-C: what is being built ends with its process
            pool.shutdown(wait=False, cancel_futures=True)
            for level in levels:
                level.stop()
            raise


def _sized(request: Request, plan: LoadPlan) -> Request:
    """The request with the largest batch, and the longest samples where golow makes them."""
    sized = replace(request, batch=plan.most)
    if plan.lengths is None or request.example_inputs is not None:
        return sized
    return replace(sized, sequence=plan.lengths[1])


def _names(asked: Sequence[str] | None, request: Request) -> list[str]:
    """The levels to load, by their own names. Raises `GolowError` for one that `golow.compile` does
    not support, or if none can run here."""
    if request.mode != "infer":
        raise GolowError("a load test runs inference", 'use mode="infer".')
    where = request.mode, request.device
    if request.batch is not None:
        raise GolowError("a load test forms its own batches", "use max_batch=, not batch=.")
    listed = ladder.listed(asked)
    names = ladder.default(*where) if listed is None else listed
    chosen = [ladder.choose(name, *where) for name in names]
    found = list(dict.fromkeys(one.name for one in chosen))
    if listed is None:
        return [name for name in found if _runs(name, request.device)]
    for name in found:
        if not is_callable(name, request.device):
            raise GolowError(
                f"{name} cannot be called from your own program",
                f"levels for a load test are {', '.join(LEVELS)}.",
            )
    if not found:
        raise GolowError("there is no level to load", "name at least one level.")
    require_any(listed, chosen, request.device)
    return found


def _runs(name: str, device: Device) -> bool:
    """True for a default level that `golow.compile` supports and that can run here."""
    available = ladder.choose(name, "infer", device).level.probe_on(device).available
    return is_callable(name, device) and available


def _require_deterministic(prepared: Prepared) -> None:
    if prepared.workload.draws:
        raise GolowError(
            f"{prepared.workload.model} draws random numbers, so its answers cannot be checked",
            "load a model without them.",
        )

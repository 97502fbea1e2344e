"""Turns the results of a comparison into its record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from golow.measure.environment import environment_of
from golow.measure.rounds import Race
from golow.programs.comparison.bench import Raced
from golow.programs.comparison.entrant import Entrant
from golow.programs.comparison.settings import ComparisonSettings
from golow.records.comparison import Comparison, Conditions, Environment, RaceSummary, Ratio, Run
from golow.records.record import FORMAT_VERSION
from golow.records.workload import Workload
from golow.storage.names import LONGEST_PART, file_name


def recorded(
    workload: Workload,
    settings: ComparisonSettings,
    raced: Raced,
    notes: Sequence[str],
) -> Comparison:
    """The record of the results so far, with a run for every entrant, the baseline first."""
    entrants, races, interrupted = raced
    created = datetime.now(UTC)
    model = file_name(workload.model, LONGEST_PART)
    shape = "x".join(map(str, workload.inputs[0].shape[1:]))
    comparison = Comparison(
        format_version=FORMAT_VERSION,
        id=f"{created:%Y%m%d-%H%M%S}-{model}-{workload.mode}-b{workload.batch}-{shape}",
        created=created.isoformat(timespec="seconds"),
        workload=workload,
        race=_race_summary(races, entrants[0].name, workload.seed, settings.interval, interrupted),
        runs=(),
        notes=tuple(notes),
    )
    machine = environment_of(workload.source, workload.threads)
    runs = tuple(_run(e, entrants[0], comparison, machine, settings.cold) for e in entrants)
    return msgspec.structs.replace(comparison, runs=runs)


def _run(
    entrant: Entrant, baseline: Entrant, within: Comparison, machine: Environment, cold: bool
) -> Run:
    race, level, workload = entrant.race, entrant.level, within.workload
    ratio = race.ratio(entrant.name) if race else None
    if race and entrant is baseline and race.blocks[baseline.name]:
        ratio = Ratio(value=1.0, low=1.0, high=1.0, word="same")
    return Run(
        format_version=FORMAT_VERSION,
        id=f"{within.id}/{entrant.name}",
        created=within.created,
        level=entrant.name,
        workload=workload,
        check=level.check,
        environment=machine,
        conditions=Conditions(
            threads=workload.threads,
            affinity=machine.affinity,
            precision=workload.precision,
            wait_policy=machine.thread_settings.get("OMP_WAIT_POLICY", "default"),
            contended_share=race.contended_share(entrant.name) if race else 0.0,
            rounds_used=race.rounds_used(entrant.name) if race else "",
            resident_with=entrant.resident_with,
            device=workload.device,
            cache="cold" if cold else "warm",
            throttled_share=race.throttled_share(entrant.name) if race else 0.0,
        ),
        blocks=race.blocks[entrant.name] if race else (),
        time=race.time(entrant.name) if race else None,
        ratio=ratio,
        memory=tuple(entrant.memory),
        life=tuple(entrant.life()),
        build_cached=level.launch.cached if level.launch else False,
        payback_iterations=entrant.payback(baseline),
        notes=tuple(level.notes),
        log=level.log,
        layers=entrant.layers,
        layers_missing=entrant.layers_missing,
        device=tuple(entrant.device),
        choices=level.in_force,
    )


def _race_summary(
    races: Sequence[Race], baseline: str, seed: int, interval: float, interrupted: bool
) -> RaceSummary:
    """The summary of the longest race if memory required several; empty if nothing matched."""
    none = Race(levels=(), baseline=baseline, seed=seed, target=interval, least_rounds=0)
    summary = max((race.summary for race in races), key=lambda s: s.rounds, default=none.summary)
    if interrupted:
        summary = msgspec.structs.replace(summary, stopped_because="interrupted")
    return summary

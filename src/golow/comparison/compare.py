"""The whole program in one function: run a workload at every level, check, measure and record it.

`compare` reads as the table of contents: prepare and bundle the workload, capture the graph and
compute the reference; build, load and check each level; race the levels that match; write the
records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import psutil

from golow.cache import open_cache
from golow.check.checked_level import CheckedLevel
from golow.check.standard import Standard, checking
from golow.comparison.entrant import Entrant
from golow.comparison.recording import recorded
from golow.comparison.settings import ComparisonSettings
from golow.levels.choices import choices
from golow.levels.ladder import BASELINE
from golow.levels.starter import Starter
from golow.lower.work import least_operations
from golow.measure.nvml import Card
from golow.measure.peak import impossible
from golow.measure.race import run_race
from golow.measure.rounds import Race
from golow.observer import Observer
from golow.record import Comparison, GolowError
from golow.scratch import scratch_folder
from golow.workload.bundle import write_bundle
from golow.workload.captured import write_graph
from golow.workload.prepare import prepare
from golow.workload.request import Request
from golow.workload.trial import require_device

MUCH_FASTER = 0.1  # of eager's time; who needs less is held against the machine's peak
MEMORY_MARGIN = 1.3  # a worker may need this times the resident set of the largest one so far


def compare(request: Request, settings: ComparisonSettings, observer: Observer) -> Comparison:
    """Run the model at every level, check that the levels agree, and measure what each one costs.

    After Ctrl-C the record holds the partial results, and ``race.stopped_because`` is
    ``interrupted``. Raises `GolowError` for errors that the caller can fix. An error in a level is
    that level's result.
    """
    if settings.cold and request.device == "cpu":
        raise GolowError("--cold empties the cache of a GPU", "add --device cuda.")
    _require_sense(settings)
    require_device(request.device, request.precision)
    cache = open_cache(settings.cache)
    chosen = choices(settings.levels, settings.workers, request.mode, request.device)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        starter = stack.enter_context(Starter(settings.limits, settings.turn))
        reference = checking(request.mode, request.device)
        starter.ahead([reference, *chosen], request.mode, request.threads)

        observer.stage("preparing the workload")
        prepared = prepare(request, starter.turn.beside())
        bundle, prepared = write_bundle(prepared, folder / "bundle")

        observer.stage("capturing the graph")
        notes = write_graph(prepared, bundle)

        card = stack.enter_context(Card()) if request.device == "cuda" else None
        levels = [
            stack.enter_context(
                CheckedLevel(choice, bundle, cache, starter, observer, card=card, timed=True)
            )
            for choice in chosen
        ]
        entrants = [
            Entrant(level, by_layer=settings.by_layer, brief=settings.brief) for level in levels
        ]
        races: list[Race] = []
        interrupted = False
        try:
            observer.stage("computing the float64 reference")
            eager = levels[0].outputs(f"1 of {len(levels)}")
            standard = Standard(bundle, folder, starter, eager)
            notes += standard.notes
            for group in _resident_groups(entrants, standard, settings.allow_differs):
                with starter.turn.alone():
                    observer.stage("calibrating the race")
                    races.append(_raced(group, standard, request.seed, settings, observer))
                    observer.stage("measuring memory, energy and layers")
                    for entrant in group:
                        entrant.finish(races[-1], [other.name for other in group])
                    for entrant in group:
                        entrant.judge_device(entrants[0])
                interrupted = races[-1].stopped_because == "interrupted"
                if interrupted:
                    break
        except KeyboardInterrupt:
            interrupted = True
        return recorded(prepared.workload, settings, entrants, races, notes, interrupted)


def _require_sense(settings: ComparisonSettings) -> None:
    if not 0 <= settings.time_limit < math.inf:
        raise GolowError(
            f"a time limit of {settings.time_limit} s is not allowed", "use --time-limit 60 or so."
        )
    if not 0 <= settings.interval < math.inf:
        raise GolowError(
            f"an interval of {settings.interval} is not allowed", "use --interval 0.02 or so."
        )


def _raced(
    group: Sequence[Entrant],
    standard: Standard,
    seed: int,
    settings: ComparisonSettings,
    observer: Observer,
) -> Race:
    workers = (entrant.level.worker for entrant in group)
    checks = {entrant.name: entrant.level.check for entrant in group}
    race = run_race(
        [worker for worker in workers if worker is not None],
        baseline=BASELINE,
        seed=seed,
        target=settings.interval,
        time_limit=settings.time_limit,
        card=group[0].level.card,
        cold=settings.cold,
        proof=standard.verifier(checks, BASELINE),
        weights=group[0].level.bundle.file("weights.safetensors").stat().st_size,
        observer=observer.race,
    )
    if race.stopped_because == "interrupted":
        return race
    observer.stage("checking what the race left")
    differing = {}
    for entrant in group:
        if entrant.name in race.racing and (reason := entrant.level.judge_timed(standard)):
            differing[entrant.name] = f"after the race: {reason}"
    race = race.without(differing, "differs")
    return race.without(_beyond_the_peak(race, group), "clock")


def _beyond_the_peak(race: Race, group: Sequence[Entrant]) -> dict[str, str]:
    """Why levels cannot be as fast as they say, by name. Only those that are much faster than eager
    are looked at: the first look measures the machine's peak, which takes seconds."""
    bundle, cache = group[0].level.bundle, group[0].level.cache
    if bundle.graph is None:
        return {}
    operations = least_operations(bundle.graph)
    reasons = {}
    for name in race.racing:
        time, ratio = race.time(name), race.ratio(name)
        if time is not None and ratio is not None and ratio.value < MUCH_FASTER:
            reasons[name] = impossible(operations, time.value, bundle.workload, cache)
    return {name: reason for name, reason in reasons.items() if reason}


def _resident_groups(
    entrants: Sequence[Entrant], standard: Standard, allow_differs: bool
) -> Iterator[list[Entrant]]:
    """Yield groups of loaded entrants that may be timed together, each with the baseline.

    Usually memory allows one group. A level that does not fit waits for the next group, which
    starts after the workers of the current one are closed.
    """
    baseline, waiting = entrants[0], list(entrants[1:])
    total = len(entrants)
    while True:
        if baseline.level.start(standard, allow_differs, f"1 of {total}") is None:
            return
        group = [baseline]
        while waiting and (len(group) == 1 or _room_for_another(group)):
            entrant = waiting.pop(0)
            place = f"{total - len(waiting)} of {total}"
            if entrant.level.start(standard, allow_differs, place) is not None:
                group.append(entrant)
        yield group
        for entrant in group:
            entrant.level.dismiss()
        for entrant in group:
            entrant.level.close()
        if not waiting:
            return


def _room_for_another(group: Sequence[Entrant]) -> bool:
    levels = [entrant.level for entrant in group]
    largest = max(level.resident_bytes() for level in levels)
    if not psutil.virtual_memory().available > MEMORY_MARGIN * largest:
        return False
    card = levels[0].card
    free = card.free_bytes() if card is not None else None
    if free is None:
        return True
    return free > MEMORY_MARGIN * max(level.device_bytes() for level in levels)

"""A prepared workload on which levels are checked and raced, once or several times."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import msgspec
import psutil

from golow.check.checked_level import CheckedLevel
from golow.check.locating import Level, locate
from golow.check.reference import Standard
from golow.check.timed_results import Verifier
from golow.levels.ladder import ChosenLevel
from golow.levels.starter import Starter
from golow.lower.analysis.arithmetic import least_operations
from golow.measure.gpu.nvml import Card
from golow.measure.peak import impossible
from golow.measure.race import run_race
from golow.measure.rounds import Race
from golow.measure.words import LEAST_ROUNDS
from golow.observer import Observer, notice
from golow.programs.comparison.entrant import Entrant
from golow.programs.comparison.settings import ComparisonSettings
from golow.records.errors import GolowError, WorkerFailure
from golow.records.workload import Workload
from golow.storage.cache import open_cache
from golow.storage.scratch import scratch_folder
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.graph_capture import write_graph
from golow.workload.prepare import prepare
from golow.workload.request import Request
from golow.workload.trial import require_device

MUCH_FASTER = 0.1  # of eager's time; a level that needs less is compared with the machine's peak
MEMORY_MARGIN = 1.3  # a worker may need this times the resident set of the largest one so far


class Raced(NamedTuple):
    """Result of one call of `Bench.race`.

    entrants: every level, the baseline first; their workers have ended. races: one for each group
    of levels that memory had room for. interrupted: by Ctrl-C; the partial results are kept.
    """

    entrants: Sequence[Entrant]
    races: Sequence[Race]
    interrupted: bool


@contextmanager
def open_bench(
    request: Request,
    settings: ComparisonSettings,
    observer: Observer,
    starter: Starter,
) -> Iterator[Bench]:
    """Prepare the workload and capture its graph. Leaving the ``with`` block removes its files.

    Raises `GolowError` for errors that the caller can fix.
    """
    require_device(request.device, request.precision, request.ranks)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        observer.stage("preparing the workload")
        prepared = prepare(request, starter.turn.beside())
        bundle, prepared = write_bundle(prepared, folder / "bundle")

        observer.stage("capturing the graph")
        notes = write_graph(prepared, bundle)
        card = stack.enter_context(Card()) if request.device == "cuda" else None
        # The race needs it, and it takes a second: imported while this process waits for workers.
        Thread(target=import_module, args=("scipy.stats",), daemon=True).start()
        yield Bench(
            prepared.workload,
            bundle,
            folder,
            open_cache(settings.cache),
            starter,
            card,
            settings,
            observer,
            list(notes),
        )


@dataclass
class Bench:
    """A workload on disk, with what its races share. `open_bench` makes it.

    card: the GPU, None on a CPU. notes: for the record. standard: what levels are checked against;
    the first race makes it.
    """

    workload: Workload
    bundle: Bundle
    folder: Path
    cache: Path
    starter: Starter
    card: Card | None
    settings: ComparisonSettings
    observer: Observer
    notes: list[str]
    standard: Standard | None = field(default=None, init=False)

    def race(
        self,
        chosen: Sequence[ChosenLevel],
        against: Mapping[str, str] | None = None,
        necessary: int = LEAST_ROUNDS,
    ) -> Raced:
        """Check these levels, eager first, and race those that match, each in a new process. Eager
        races even if it is wrong, because every ratio is to its time.

        against: the level that another one is compared with, by name; eager unless it is named.
        necessary: rounds without which there is no conclusion. Raises `GolowError` if nothing can
        be checked.
        """
        with ExitStack() as stack:
            levels = [stack.enter_context(self._level(choice)) for choice in chosen]
            entrants = [
                Entrant(level, by_layer=self.settings.by_layer, brief=self.settings.brief)
                for level in levels
            ]
            races: list[Race] = []
            try:
                standard = self._standard(levels[0], len(levels))
                for group in self._resident_groups(entrants, standard, against or {}):
                    self._race_group(group, standard, against or {}, necessary, races)
                    if races[-1].stopped_because == "interrupted":
                        return Raced(entrants, races, True)
                if self.settings.locate:
                    self._locate(levels)
            except KeyboardInterrupt:
                return Raced(entrants, races, True)
            return Raced(entrants, races, False)

    def in_force(self, choice: ChosenLevel) -> dict[str, str]:
        """The values in effect at a level, by choice, as a new worker of it reads them; empty if it
        cannot be loaded."""
        with self._level(choice) as level:
            level.start(None, False, "settings")
            return level.in_force

    # ------------------------------------------------------------ implementation

    def _level(self, choice: ChosenLevel) -> CheckedLevel:
        return CheckedLevel(
            choice,
            self.bundle,
            self.cache,
            self.starter,
            self.observer,
            card=self.card,
            timed=True,
        )

    def _locate(self, levels: Sequence[CheckedLevel]) -> None:
        """Find the first wrong operation of the levels that differ."""
        for level in levels:
            if level.check.verdict != "differs":
                continue
            self.observer.stage(f"{level.name}: locating the first wrong operation")
            again = Level(level.choice, self.bundle, self.cache, self.starter)
            try:
                found = locate(again, level.check)
                level.check = msgspec.structs.replace(level.check, located=found)
            except (GolowError, WorkerFailure) as error:
                level.notes.append(f"the wrong operation could not be located: {error.message}")

    def _standard(self, eager: CheckedLevel, levels: int) -> Standard:
        """Return the standard, whose eager is that of this race."""
        outputs = eager.outputs(f"1 of {levels}")
        if self.standard is None:
            self.observer.stage("computing the float64 reference")
            self.standard = Standard(self.bundle, self.folder, self.starter, outputs)
            self.notes += self.standard.notes
        else:
            self.standard.take_eager(outputs)
        return self.standard

    def _race_group(
        self,
        group: Sequence[Entrant],
        standard: Standard,
        against: Mapping[str, str],
        necessary: int,
        races: list[Race],
    ) -> None:
        """Race the group, add the race to the others, then take each one's other figures. An
        interrupt meanwhile loses those figures, not the race."""
        with self.starter.turn.alone(), self.starter.paused():
            self.observer.stage("calibrating the race")
            races.append(self._raced(group, standard, against, necessary))
            for entrant in group:
                entrant.keep(races[-1], [other.name for other in group])
            try:
                self.observer.stage("measuring memory, energy and layers")
                self._finish(group, races[-1])
            finally:
                reasons = {entrant.name: entrant.device_refutes(group[0]) for entrant in group}
                refuted = {name: reason for name, reason in reasons.items() if reason}
                for entrant in group:
                    entrant.refute(refuted)
                races[-1] = races[-1].without(refuted, "clock")

    def _finish(self, group: Sequence[Entrant], race: Race) -> None:
        """Take each one's other figures; concurrently if they are only memory, which does not
        depend on other processes."""
        if self.card is not None or self.settings.by_layer:
            for entrant in group:
                entrant.finish(race)
            return
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(lambda entrant: entrant.finish(race), group))

    def _raced(
        self,
        group: Sequence[Entrant],
        standard: Standard,
        against: Mapping[str, str],
        necessary: int,
    ) -> Race:
        settings = self.settings
        workers = (entrant.level.worker for entrant in group)
        checks = {entrant.name: entrant.level.check for entrant in group}
        baseline = group[0].name
        proof = standard.verifier(checks, baseline)
        race = run_race(
            [worker for worker in workers if worker is not None],
            baseline=baseline,
            against=against,
            seed=self.workload.seed,
            target=settings.interval,
            time_limit=settings.time_limit,
            necessary=necessary,
            card=self.card,
            cold=settings.cold,
            proof=proof,
            weights=self.bundle.file("weights.safetensors").stat().st_size,
            threads=self.workload.threads * self.workload.ranks,
            observer=self.observer.race,
        )
        if race.stopped_because == "interrupted":
            return race
        trained = self._trained(group, race)
        if race.cuts:
            self._tell_cuts(group, race)
        if trained and baseline in race.cuts:
            group[0].level.start(None, False, "again")
        self.observer.stage("checking the state after the race")
        race = race.without(self._unchecked(group[0], trained, proof, race), "clock")
        differing = self._left_otherwise(group, standard, proof, race)
        for entrant in group:
            racing = entrant.name in race.racing and entrant.name not in differing
            if racing and (reason := entrant.level.judge_timed(standard)):
                differing[entrant.name] = reason
        after = {name: f"after the race: {reason}" for name, reason in differing.items()}
        race = race.without(after, "differs")
        return race.without(self._beyond_the_peak(race), "clock")

    def _tell_cuts(self, group: Sequence[Entrant], race: Race) -> None:
        """Note that the race ended in the middle of blocks, whose workers are no longer usable."""
        for entrant in group:
            level = entrant.level
            if (cut := race.cuts.get(level.name)) is not None:
                level.close()
                level.notes.append(f"the race ended in the middle of its block: {cut.message}")
                text = f"the race ended in the middle of a block of {level.name}: {cut.message}"
                self.notes.append(text)
                notice(self.observer, text)
            elif level.worker is not None and not race.blocks.get(level.name):
                level.notes.append("the race ended before its first block")

    def _trained(self, group: Sequence[Entrant], race: Race) -> Sequence[Entrant]:
        """Levels whose state after a training run is compared with that of the group's first level.
        If eager is wrong, it proves nothing about the others."""
        first = group[0].level
        proves = first.name in race.racing and first.check.verdict == "match"
        if self.workload.mode != "train" or not proves:
            return ()
        return [entrant for entrant in group[1:] if entrant.name in race.racing]

    def _unchecked(
        self, eager: Entrant, trained: Sequence[Entrant], proof: Verifier, race: Race
    ) -> dict[str, str]:
        """Levels whose state cannot be checked: the race was cut in the middle of their block, or
        lacks one. They get no time: otherwise a worker could avoid the check by stalling."""
        reason = (
            "the race ended before what this level trained could be checked; allow a longer time "
            "limit"
        )
        return {
            entrant.name: reason
            for entrant in trained
            if eager.level.worker is None
            or entrant.name in race.cuts
            or not proof.can_verify(race.blocks[entrant.name])
        }

    def _left_otherwise(
        self, group: Sequence[Entrant], standard: Standard, proof: Verifier, race: Race
    ) -> dict[str, str]:
        """Return by name why levels took fewer training steps than they claim. This precedes any
        other request, and nothing told the levels that the race would end here."""
        reasons, first = {}, group[0].level.worker
        for entrant in self._trained(group, race):
            if first is not None:
                steps = proof.steps_since_reset(race.blocks[entrant.name])
                reasons[entrant.name] = entrant.level.judge_left(standard, first, steps)
        return {name: reason for name, reason in reasons.items() if reason}

    def _beyond_the_peak(self, race: Race) -> dict[str, str]:
        """Return by name why levels cannot be as fast as they claim. Only levels much faster than
        eager are examined, because the first examination measures the machine's peak, which takes
        seconds."""
        if self.bundle.graph is None:
            return {}
        operations = least_operations(self.bundle.graph)
        reasons = {}
        for name in race.racing:
            time, ratio = race.time(name), race.ratio(name)
            if time is not None and ratio is not None and ratio.value < MUCH_FASTER:
                reasons[name] = impossible(operations, time.value, self.workload, self.cache)
        return {name: reason for name, reason in reasons.items() if reason}

    def _resident_groups(
        self, entrants: Sequence[Entrant], standard: Standard, against: Mapping[str, str]
    ) -> Iterator[list[Entrant]]:
        """Yield groups of loaded entrants that may be timed together, each with the baseline and
        the others that a level is compared with.

        Usually memory allows one group. A level that does not fit waits for the next group, which
        starts after the workers of the current one are closed.
        """
        always = {entrants[0].name, *against.values()}
        bases = [entrant for entrant in entrants if entrant.name in always]
        waiting = [entrant for entrant in entrants if entrant.name not in always]
        places = {entrant.name: i for i, entrant in enumerate((*bases, *waiting), 1)}

        def starts(entrant: Entrant) -> bool:
            place = f"{places[entrant.name]} of {len(entrants)}"
            allow = self.settings.allow_differs or entrant is bases[0]
            return entrant.level.start(standard, allow, place) is not None

        while True:
            group = [entrant for entrant in bases if starts(entrant)]
            if bases[0] not in group:
                return
            least = len(group)
            while waiting and (len(group) == least or _room_for_another(group)):
                entrant = waiting.pop(0)
                if starts(entrant):
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

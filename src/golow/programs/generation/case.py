"""All levels on one batch size: forced and free texts, the race, the replay of all tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from golow.levels.generation.table import BASELINE, REFERENCE
from golow.levels.level import python_worker
from golow.measure.block import MOST_ATTEMPTS
from golow.measure.gpu.nvml import Card
from golow.measure.rounds import Race
from golow.observer import Observer
from golow.programs.generation.contestants import Contestant
from golow.programs.generation.drawn_tokens import Drawn
from golow.programs.generation.figures import race_figures
from golow.programs.generation.forced import ForcedTexts, TextStandard
from golow.programs.generation.generation_record import TextCase
from golow.programs.generation.loading import Loading, Start, load_together, most_together
from golow.programs.generation.replays import MadeTexts, Replays
from golow.programs.generation.settings import GenerationSettings
from golow.programs.generation.standing import Standing
from golow.programs.generation.timing import Entrant, Prompts, race_texts, refute_clock
from golow.records.errors import GolowError, WorkerFailure
from golow.storage.scratch import scratch_folder
from golow.worker.text_client import TextWorker
from golow.workload.generation.alphabet import text_of
from golow.workload.generation.text_bundle import WEIGHTS, TextBundle


class Case:
    """The levels on the texts of one bundle."""

    def __init__(
        self,
        bundle: TextBundle,
        prompts: Sequence[Sequence[int]],
        settings: GenerationSettings,
        cache: Path,
        observer: Observer,
    ) -> None:
        """prompts: the tokens that the user gave, for all texts or for each; drawn ones if there
        are none."""
        self._bundle, self._workload = bundle, bundle.workload
        self._settings, self._cache, self._observer = settings, cache, observer
        self._drawn = Drawn(self._workload)
        self._given = [list(prompt) for prompt in prompts]
        given = self._given * self._workload.batch if len(prompts) == 1 else self._given
        self._prompt = given or self._drawn.prompts()
        self._choices = self._drawn.choices()
        self._standings: list[Standing] = []
        self._race: Race | None = None
        self._limit = 0.0
        self._card: Card | None = None

    def run(self, contestants: Sequence[Contestant]) -> bool:
        """Check and time the levels; True if Ctrl-C ended it. Raises `GolowError` if the reference
        or the step module itself cannot run: nothing can be checked then."""
        self._standings = [Standing(one.name) for one in contestants]
        with ExitStack() as stack:
            try:
                if self._workload.device == "cuda":
                    self._card = stack.enter_context(Card())
                self._start(contestants, stack)
                self._prove(stack)
                self._time()
                self._observer.stage("replaying the tokens of the race")
                self._judge_tokens()
            except KeyboardInterrupt:
                self._keep_what_is_proved()
                return True
            except WorkerFailure as failure:  # of the reference; a level's own is its verdict
                raise GolowError(
                    f"the float64 reference failed, so nothing can be proved: {failure.message}",
                    "generate shorter texts or a smaller batch if memory is short.",
                ) from failure
        return self._race is not None and self._race.stopped_because == "interrupted"

    def record(self) -> TextCase:
        """The record of this batch size, as far as it was measured."""
        runs = tuple(
            msgspec.structs.replace(standing.record(), **self._written(standing.free))
            for standing in self._standings
        )
        summary = None if self._race is None else self._race.summary
        return TextCase(workload=self._workload, runs=runs, race=summary, error_limit=self._limit)

    def _written(self, free: MadeTexts | None) -> dict[str, Any]:
        """Return the given texts and what a level wrote after them, by fields of its record; only
        the latter if an encoder read the given ones."""
        if free is None or not self._given:
            return {}
        work = self._workload
        first, *further = (
            text_of([*(() if work.encoder else prompt), *tokens], work.alphabet, work.source)
            for prompt, tokens in zip(self._given, free.tokens, strict=False)
        )
        return {"written": first, "further": tuple(further)}

    # ------------------------------------------------------------ the stages

    def _start(self, contestants: Sequence[Contestant], stack: ExitStack) -> None:
        """Start and load all workers: first those that time nothing meanwhile, together."""
        weights = (self._bundle.folder / WEIGHTS).stat().st_size
        most = most_together(self._workload, weights, self._card)
        together, alone = list[Start](), list[Start]()
        for standing, contestant in zip(self._standings, contestants, strict=True):
            company = contestant.loads_in_company(self._workload, self._cache)
            start = partial(self._begun, standing, contestant, stack)
            (together if company else alone).append(start)
        together.append(partial(self._begun_reference, stack))
        load_together(together, most, self._observer)
        load_together(alone, 1, self._observer)

    def _begun(
        self, standing: Standing, contestant: Contestant, stack: ExitStack
    ) -> Loading | None:
        with standing.recorded():
            command, environment = contestant.launch(self._workload, self._cache)
            worker = self._worker(standing.name, command, environment)
            standing.begin_loading(stack.enter_context(worker), self._bundle.folder)

            def finish() -> None:
                with standing.recorded():
                    standing.finish_loading()
                    worker.on_delay = self._observer.stage
                    contestant.has_loaded(self._workload, self._cache)

            return Loading(standing.name, worker, finish)
        return None

    def _begun_reference(self, stack: ExitStack) -> Loading:
        worker = self._worker("reference", python_worker(REFERENCE, ""))
        self._reference = stack.enter_context(worker)
        worker.begin_loading(self._bundle.folder)
        return Loading("the reference", worker, worker.finish_loading)

    def _worker(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> TextWorker:
        return TextWorker(
            name,
            command,
            threads=self._workload.threads,
            environment=environment,
            limits=self._settings.limits,
        )

    def _prove(self, stack: ExitStack) -> None:
        """The check of the logits, then a free text of each level that passed it."""
        folder, reference = stack.enter_context(scratch_folder()), self._reference
        self._observer.stage("the reference: float64")
        forced = ForcedTexts(self._workload, self._drawn, folder)
        baseline = self._baseline
        base = self._base_outputs(forced)
        standard = TextStandard(self._workload, forced, reference, base)
        for standing in self._passing():
            self._observer.stage(f"{standing.name}: checking")
            with standing.recorded():
                own = base if standing is baseline else forced.outputs(standing.worker_of())
                standing.check = standard.judge(own)
        self._limit = standard.error_limit.everywhere
        self._replays = Replays(reference, standard.error_limit)
        for standing in self._passing():
            self._observer.stage(f"{standing.name}: a free text")
            with standing.recorded():
                standing.free = self._free_text(standing.worker_of())
        self._judge_tokens()

    def _base_outputs(self, forced: ForcedTexts) -> Path:
        """The logits of the step module in the working precision."""
        if self._baseline.stands:
            with self._baseline.recorded():
                return forced.outputs(self._baseline.worker_of())
        raise GolowError(
            f"{BASELINE}, by which every level is judged, failed: {self._baseline.reason}"
        )

    def _free_text(self, worker: TextWorker) -> MadeTexts:
        found = worker.text(self._prompt, self._workload.tokens, self._choices)
        return MadeTexts(self._prompt, self._choices, found.tokens)

    def _drawn_text(self, worker: TextWorker) -> MadeTexts:
        prompt, choices = self._drawn.prompts(), self._drawn.choices()
        found = worker.text(prompt, self._workload.tokens, choices)
        return MadeTexts(prompt, choices, found.tokens)

    def _time(self) -> None:
        racing = self._passing()
        if not racing:
            return
        entrants = [Entrant(one.worker_of(), self._workload.tokens) for one in racing]
        for standing, entrant in zip(racing, entrants, strict=True):
            standing.entrant = entrant
        self._race = race_texts(
            entrants,
            Prompts(self._drawn, MOST_ATTEMPTS),
            seed=self._workload.seed,
            time_limit=self._settings.seconds * len(racing),
            target=self._settings.interval,
            observer=self._observer,
        )
        for standing in racing:
            if (failure := self._race.failures.get(standing.name)) is not None:
                standing.fail(failure)
                continue
            said = refute_clock(self._race.blocks[standing.name])
            if said:
                standing.refute(said)
            standing.read_memory(self._card)
            standing.read_energy(self._drawn_text, self._card)

    # ------------------------------------------------------------ the tokens

    def _judge_tokens(self) -> None:
        """Check all tokens generated so far with the reference, then record the times of the levels
        whose tokens are correct."""
        made = [one for standing in self._standings for one in standing.made]
        self._replays.learn(made)
        base = self._baseline.free
        for standing in self._passing():
            errors = [self._replays.errors(one) for one in standing.made]
            standing.replayed = sum(len(text) for found in errors for text in found)
            standing.worst = max((max(map(max, found)) for found in errors), default=0.0)
            for one in standing.made:
                what = "free text" if one is standing.free else "timed text"
                if said := self._replays.refuted(one, what):
                    standing.refute(said)
                    break
            if base is not None and standing.free is not None and standing is not self._baseline:
                standing.departure = self._replays.departure(standing.free, base)
        self._take_figures()

    def _take_figures(self) -> None:
        if self._race is None:
            return
        proved = {standing.name for standing in self._passing()}
        refuted_ones = {name: "" for name in self._race.racing if name not in proved}
        self._race = self._race.without(refuted_ones, "differs")
        for standing in self._passing():
            standing.timed = race_figures(self._race, standing.name)

    def _keep_what_is_proved(self) -> None:
        """After a second Ctrl-C, or one outside of the race: times of tokens that were not checked
        are not kept."""
        self._race = None

    def _passing(self) -> list[Standing]:
        return [standing for standing in self._standings if standing.stands]

    @property
    def _baseline(self) -> Standing:
        return next(standing for standing in self._standings if standing.name == BASELINE)

"""Runs a prepared training: each level from every start, then the verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import msgspec

from golow.check.checked_level import CheckedLevel
from golow.check.reference import Standard
from golow.levels.ladder import BASELINE, ChosenLevel
from golow.levels.starter import Starter
from golow.measure.environment import environment_of, unlike
from golow.measure.gpu.nvml import Card
from golow.programs.training import store as training_store
from golow.programs.training.bundle import TrainingBundles
from golow.programs.training.data import TrainingData
from golow.programs.training.learner import Learner
from golow.programs.training.observer import TrainingObserver
from golow.programs.training.run_spec import RunSpec
from golow.programs.training.store import ROUNDING, Findings, RunFolder, run_folder, starts
from golow.programs.training.training_record import Training, TrainingPlan, TrainingRun
from golow.programs.training.verdict import verdicts
from golow.programs.training.workers import Workers
from golow.records.comparison import Check
from golow.records.errors import GolowError

ROUNDING_STEPS = 200
"""Steps of eager's second run, which measures the effect of rounding; rounded up to whole epochs.
This is all of a small training and a small part of a long one."""


@dataclass
class Session:
    """A training run and what it needs to run. scratch: a folder for temporary files."""

    plan: TrainingPlan
    data: TrainingData
    bundles: TrainingBundles
    folder: Path
    scratch: Path
    cache: Path
    starter: Starter
    observer: TrainingObserver
    notes: list[str] = field(default_factory=list)

    def run(self, chosen: Sequence[ChosenLevel]) -> tuple[Training, bool]:
        """Run the levels; returns the training run, and whether Ctrl-C ended it."""
        interrupted = False
        with ExitStack() as stack:
            stack.enter_context(training_store.held(self.folder))
            self._note(training_store.read_findings(self.folder).notes)
            self._note(self.bundles.notes)
            card = stack.enter_context(Card()) if self.plan.device == "cuda" else None
            known = self._known()
            places = count(1)
            try:
                standard = self._standard(known)
                for choice in chosen:
                    level = self._level(choice, card, known)
                    with Workers(level, self.bundles.infer) as workers:
                        self._train(workers, standard, places)
            except KeyboardInterrupt:
                interrupted = True
            return self._conclude(), interrupted

    def require_same_start(self) -> None:
        """Raise `GolowError` if the model has changed since the training run began; note changes of
        the environment."""
        plan = self.plan
        there = next((run for run in self._stored()), None)
        if there is not None and not plan.live:
            start = self.bundles.start(there.initialisation, there.seed)
            if start.workload.digest != there.workload.digest:
                raise GolowError(
                    f"{plan.model} has changed since the training began",
                    "restore its source, or start a new training.",
                )
        now = environment_of(self.bundles.workload.source, plan.threads)
        changed = unlike(plan.environment, now, plan.device)
        if changed:
            self._note([f"it continued in another environment: {'; '.join(changed)}"])

    # ------------------------------------------------------------ how it is done

    def _train(self, workers: Workers, standard: Standard | None, places: Iterator[int]) -> None:
        """Train a level from every start from which it is not fully trained yet."""
        for spec in self._specs(workers.level.name):
            learner, place = Learner(workers, spec, self.observer), next(places)
            if not learner.done:
                learner.learn(standard, f"{place} of {self._runs}")
                self._conclude()

    def _specs(self, level: str) -> Iterator[RunSpec]:
        """Every run of a level. After its first run with an initialisation, eager trains a second
        time, from weights that are a few roundings away."""
        plan = self.plan
        for initialisation in plan.initialisations:
            for seed in plan.seeds:
                spec = RunSpec(
                    plan=plan,
                    data=self.data,
                    initialisation=initialisation,
                    seed=seed,
                    start=self.bundles.start(initialisation, seed),
                    epochs=plan.epochs,
                    folder=run_folder(self.folder, level, initialisation, seed),
                    scratch=self.scratch,
                )
                yield spec
                if level == BASELINE and seed == plan.seeds[0] and self._rounding_tells:
                    yield self._moved(spec)

    def _moved(self, spec: RunSpec) -> RunSpec:
        moved = self.bundles.moved(spec.initialisation, spec.seed)
        return spec._replace(
            start=spec.start._replace(state=moved),
            epochs=min(self.plan.epochs, -(-ROUNDING_STEPS // spec.batches)),
            folder=RunFolder(self.folder, BASELINE, spec.initialisation, ROUNDING),
        )

    @property
    def _rounding_tells(self) -> bool:
        """True if a second run of eager is useful. It is not if random layers make two runs differ
        from the first step on, or if there is no level to judge."""
        return len(self.plan.levels) > 1 and not self.bundles.workload.random_layers

    @property
    def _runs(self) -> int:
        twins = len(self.plan.initialisations) if self._rounding_tells else 0
        return len(list(starts(self.plan))) + twins

    def _level(
        self, choice: ChosenLevel, card: Card | None, known: Mapping[str, Check]
    ) -> CheckedLevel:
        return CheckedLevel(
            choice,
            self.bundles.train,
            self.cache,
            self.starter,
            self.observer,
            card=card,
            known=known.get(choice.name),
        )

    def _standard(self, known: Mapping[str, Check]) -> Standard | None:
        """Reference that the levels are checked against; None if every level already has a
        verdict."""
        if set(self.plan.levels) <= set(known):
            return None
        self.observer.stage("computing the float64 reference")
        standard = Standard(self.bundles.train, self.scratch, self.starter)
        self._note(standard.notes)
        return standard

    def _known(self) -> Mapping[str, Check]:
        """Verdicts of earlier checks; a level that failed is tried again."""
        judged = ("match", "differs")
        return {run.level: run.check for run in self._stored() if run.check.verdict in judged}

    def _stored(self) -> tuple[TrainingRun, ...]:
        return training_store.load(self.folder).runs

    def _conclude(self) -> Training:
        """Judge the part of the training run that is on disk, and write the verdicts."""
        training = training_store.load(self.folder)
        plan = self.plan
        found = verdicts(training.runs, training.roundings, BASELINE, plan.epochs)
        findings = Findings(verdicts=found, notes=tuple(self.notes))
        training_store.write_findings(self.folder, findings)
        return msgspec.structs.replace(training, verdicts=found, notes=findings.notes)

    def _note(self, notes: Sequence[str]) -> None:
        self.notes += [note for note in notes if note not in self.notes]

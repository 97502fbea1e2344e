"""What every level of a comparison is held against: float64, and eager's own error to it."""

from __future__ import annotations

import math
from pathlib import Path

from golow import levels as ladder
from golow.bundle import Bundle
from golow.check import Reference
from golow.levels import Launch
from golow.record import GolowError, WorkerFailure
from golow.worker.client import Limits, Worker

BATCHES = (0, 1)
OTHER_BATCHES = (2, 3)

# The relative change of the weights that rounding them to float32 makes.
ROUNDING = 2.0**-23


class Standard:
    """The reference tensors on the batches of the check, and on others for a second try."""

    def __init__(self, bundle: Bundle, folder: Path, limits: Limits) -> None:
        """Run eager in float64 and in the working precision; raises `GolowError` where either
        cannot run, since nothing can be proved then."""
        self._bundle, self._folder, self._limits = bundle, folder, limits
        self._other: Reference | None = None
        self.learning_rate = bundle.workload.optimizer.learning_rate
        self.reference = self._establish(BATCHES)
        if bundle.workload.mode == "train":
            rate = gentle_rate(self.learning_rate, self.reference)
            if rate < self.learning_rate:
                self.learning_rate = rate
                self.reference = self._establish(BATCHES)

    @property
    def notes(self) -> list[str]:
        """What a reader of the verdicts must know."""
        notes = []
        if self.learning_rate < self._bundle.workload.optimizer.learning_rate:
            notes.append(
                f"checked with the learning rate {self.learning_rate:.1g}: with the workload's own "
                "the rounding of the first step would decide the second"
            )
        if self.reference.rounding > 1e-3:
            notes.append(
                f"float32 rounding alone moves eager's {self.reference.most_sensitive} by "
                f"{self.reference.rounding:.1%} here; the check cannot see smaller errors there"
            )
        if self._bundle.workload.random_layers:
            count = len(self._bundle.workload.random_layers)
            notes.append(f"checked with {count} dropout layers switched off; timed with them on")
        return notes

    def other(self) -> Reference:
        """The same on other batches, made when it is first asked for."""
        if self._other is None:
            self._other = self._establish(OTHER_BATCHES)
        return self._other

    def _establish(self, batches: tuple[int, ...]) -> Reference:
        double, eager = (
            self._outputs(name, batches) for name in (ladder.REFERENCE, ladder.BASELINE)
        )
        reference = Reference(double, eager)
        eager.unlink()
        if not reference.finite:
            raise GolowError(
                "the model's float64 reference is not finite: nothing can be checked against it",
                "look at the weights and the inputs; --init kaiming gives fresh weights.",
            )
        return reference

    def _outputs(self, name: str, batches: tuple[int, ...]) -> Path:
        file = self._folder / f"standard-{name.replace(':', '-')}-{batches[0]}.safetensors"
        level, variant = ladder.choose(name, self._bundle.workload.mode)
        launch = level.prepare(self._bundle, variant, self._folder)
        try:
            with spawn(name, launch, self._bundle, self._limits) as worker:
                worker.load(self._bundle.folder)
                worker.outputs(batches, self.learning_rate, file)
        except WorkerFailure as failure:
            raise GolowError(
                f"{name} cannot run this workload, so no level can be checked: {failure.message}\n"
                f"{failure.log}",
                "try a smaller batch or resolution.",
            ) from failure
        return file


def gentle_rate(rate: float, reference: Reference) -> float:
    """The learning rate for the check's training steps, at most the workload's own.

    Gradients carry eager's rounding error c. The step turns it into a relative error c x r of the
    weights, r being the relative size of the update; where that exceeds what rounding the weights
    does anyway, a deep network amplifies it until its second step says nothing. The rate returned
    keeps c x r at that bound.
    """
    gradients = [v for k, v in reference.expected.items() if k.startswith("0/gradient/")]
    weights = [v for k, v in reference.expected.items() if "/parameter/" in k]
    size = math.sqrt(sum(v.scale**2 * v.elements for v in gradients))
    error = math.sqrt(sum(v.eager_error**2 * v.elements for v in gradients))
    weight = math.sqrt(sum(v.scale**2 * v.elements for v in weights))
    if size == 0 or weight == 0 or rate == 0:
        return rate
    amplified = (error / size) * (rate * size / weight)
    return rate * min(1.0, ROUNDING / amplified) if amplified > 0 else rate


def spawn(name: str, launch: Launch, bundle: Bundle, limits: Limits) -> Worker:
    """Start a level's worker under the settings that every level gets."""
    return Worker(
        name,
        launch.command,
        threads=bundle.workload.threads,
        environment=launch.environment,
        limits=limits,
    )

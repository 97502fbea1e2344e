"""What every level of a comparison is held against: float64, and eager's own error to it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from golow import levels as ladder
from golow.bundle import Bundle
from golow.check import BF16, FLOAT32, FP16, TF32, Reference, Rounding
from golow.levels import Launch
from golow.record import GolowError, WorkerFailure, Workload
from golow.worker.client import Worker
from golow.worker.limits import Limits

BATCHES = (0, 1)
OTHER_BATCHES = (2, 3)

# A relu that falls on the other side of zero shows in one draw and not in another.
DRAWS = 3


class _Workers(NamedTuple):
    double: Worker
    eager: Worker


class Standard:
    """The reference tensors on the batches of the check, and on others for a second try."""

    def __init__(self, bundle: Bundle, folder: Path, limits: Limits) -> None:
        """Run eager in float64 and in the working precision; raises `GolowError` where either
        cannot run, since nothing can be proved then."""
        self._bundle, self._folder, self._limits = bundle, folder, limits
        self._working = working_rounding(bundle)
        self._other: Reference | None = None
        self.learning_rate = bundle.workload.optimizer.learning_rate
        with self._workers() as workers:
            if bundle.workload.mode == "train":
                first = self._establish(workers, BATCHES, draws=0)
                self.learning_rate = gentle_rate(self.learning_rate, first)
            self.reference = self._establish(workers, BATCHES)

    @property
    def notes(self) -> list[str]:
        """What a reader of the verdicts must know."""
        notes = []
        if self.learning_rate < self._bundle.workload.optimizer.learning_rate:
            notes.append(
                f"checked with the learning rate {self.learning_rate:.1g}: with the workload's own "
                "the rounding of the first step would decide the second"
            )
        working = self._working
        if self.reference.rounding > max(1e-3, 10 * working.size):
            roundings = "roundings move" if working.moves > 1 else "rounding moves"
            notes.append(
                f"{working.name} {roundings} {self.reference.most_sensitive} by "
                f"{self.reference.rounding:.1%} here; the check cannot see smaller errors there"
            )
        if self._bundle.workload.random_layers:
            count = len(self._bundle.workload.random_layers)
            notes.append(f"checked with {count} dropout layers switched off; timed with them on")
        return notes

    def other(self) -> Reference:
        """The same on other batches, made when it is first asked for."""
        if self._other is None:
            with self._workers() as workers:
                self._other = self._establish(workers, OTHER_BATCHES)
        return self._other

    @contextmanager
    def _workers(self) -> Iterator[_Workers]:
        """Both workers, started together because most of a start is one thread's imports."""
        try:
            with self._spawned(ladder.REFERENCE) as double, self._spawned(ladder.BASELINE) as eager:
                yield _Workers(double, eager)
        except WorkerFailure as failure:
            raise GolowError(
                "eager or its float64 reference cannot run this workload, so no level can be "
                f"checked: {failure.message}\n{failure.log}",
                "try a smaller batch or resolution.",
            ) from failure

    def _spawned(self, name: str) -> Worker:
        workload = self._bundle.workload
        level, variant = ladder.choose(name, workload.mode, workload.device)
        launch = level.prepare(self._bundle, variant, self._folder)
        return spawn(name, launch, self._bundle, self._limits)

    def _establish(
        self, workers: _Workers, batches: tuple[int, ...], draws: int = DRAWS
    ) -> Reference:
        double = self._outputs(workers.double, self._bundle, batches)
        eager = self._outputs(workers.eager, self._bundle, batches)
        moved = self._moved(workers.double, batches, draws)
        reference = Reference(double, eager, moved, self._working)
        eager.unlink()
        if not reference.finite:
            raise GolowError(
                "the model's float64 reference is not finite: nothing can be checked against it",
                "look at the weights and the inputs; --init kaiming gives fresh weights.",
            )
        return reference

    def _moved(self, double: Worker, batches: tuple[int, ...], draws: int) -> Iterator[Path]:
        """What float64 makes of the moved bundle, once a draw; each file is gone after its use."""
        for draw in range(draws):
            folder = self._folder / f"moved-{draw}"
            bundle = moved_bundle(self._bundle, folder, draw, self._working)
            file = self._outputs(double, bundle, batches)
            shutil.rmtree(bundle.folder)
            yield file
            file.unlink()

    def _outputs(self, worker: Worker, bundle: Bundle, batches: tuple[int, ...]) -> Path:
        place = f"{worker.name.replace(':', '-')}-{bundle.folder.name}-{batches[0]}"
        file = self._folder / f"standard-{place}.safetensors"
        worker.load(bundle.folder)
        worker.outputs(batches, self.learning_rate, file)
        return file


def gentle_rate(rate: float, reference: Reference) -> float:
    """The learning rate for the check's training steps, at most the workload's own.

    A step turns the rounding error of the gradients into one of the weights, and a deep network
    amplifies that until its second step says nothing. The rate returned keeps the error of every
    weight at half of what the check allows for anyway.
    """
    worst = 0.0
    for name, weight in reference.expected.items():
        kind, _, parameter = name.partition("/")[2].partition("/")
        if kind == "parameter":
            gradient = reference.expected[f"0/gradient/{parameter}"]
            size = max(weight.scale, weight.group_scale)
            worst = max(worst, rate * gradient.eager_error / size if size else 0.0)
    return rate * min(1.0, reference.working.move / 2 / worst) if worst > 0 else rate


def working_rounding(bundle: Bundle) -> Rounding:
    """The rounding that the workload's precision means for this model: without a layer that the
    precision takes down, it is float32's."""
    workload = bundle.workload
    if workload.precision in ("bf16", "fp16"):
        return BF16 if workload.precision == "bf16" else FP16
    if workload.precision == "tf32" or (workload.precision, workload.device) == ("default", "cuda"):
        least = _least_dimensions(workload)
        with safe_open(bundle.file("weights.safetensors"), "pt") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
        return TF32 if any(len(shape) >= least for shape in shapes) else FLOAT32
    return FLOAT32


def _least_dimensions(workload: Workload) -> int:
    """Weights with that many dimensions or more are rounded to the working precision: those of
    convolutions have three at least, those of matrix products two. Halves store all in inference.
    """
    if workload.precision == "default":
        return 3
    return 0 if workload.precision in ("bf16", "fp16") and workload.mode == "infer" else 2


def moved_bundle(bundle: Bundle, folder: Path, seed: int, working: Rounding) -> Bundle:
    """The bundle with weights and inputs moved at random: by the working precision's roundings
    what that rounds, by float32's the rest."""
    generator = torch.Generator().manual_seed(seed)
    shutil.copytree(bundle.folder, folder)
    weights = load_file(bundle.file("weights.safetensors"))
    moved = moved_weights(weights, bundle.workload, working, generator)
    save_file(moved, folder / "weights.safetensors")
    batches = {
        name: _moved(tensor, working if "/input/" in name else FLOAT32, generator)
        for name, tensor in load_file(bundle.file("batches.safetensors")).items()
    }
    save_file(batches, folder / "batches.safetensors")
    return Bundle(folder)


def moved_weights(
    weights: Mapping[str, Tensor], workload: Workload, working: Rounding, generator: torch.Generator
) -> dict[str, Tensor]:
    """A state dict moved so."""
    least = _least_dimensions(workload)
    return {
        name: _moved(tensor, working if tensor.dim() >= least else FLOAT32, generator)
        for name, tensor in weights.items()
    }


def _moved(tensor: Tensor, rounding: Rounding, generator: torch.Generator) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    return (tensor * (1 + rounding.move * noise)).to(tensor.dtype)


def spawn(name: str, launch: Launch, bundle: Bundle, limits: Limits) -> Worker:
    """Start a level's worker under the settings that every level gets."""
    return Worker(
        name,
        launch.command,
        threads=bundle.workload.threads,
        environment=launch.environment,
        limits=limits,
    )

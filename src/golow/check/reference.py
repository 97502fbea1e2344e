"""The standard of a comparison: the float64 reference, and eager's own error against it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from golow.check.answering import not_answering
from golow.check.left_state import Steps, judge_left
from golow.check.marked_places import choose_spans
from golow.check.rule import (
    BF16,
    FLOAT32,
    FP16,
    TF32,
    Part,
    Reference,
    Rounding,
    check,
    confirm,
    may_be_rounding,
    recheck,
)
from golow.check.timed_results import Verifier
from golow.levels import ladder
from golow.levels.ladder import ChosenLevel
from golow.levels.starter import Starter
from golow.levels.torch.gradient_terms import MOVED
from golow.records.comparison import Check
from golow.records.errors import GolowError, WorkerFailure
from golow.records.workload import KEPT, Device, Mode, Workload
from golow.storage.hidden_file import HiddenFile
from golow.storage.scratch import scratch_folder
from golow.worker.client import Worker
from golow.worker.protocol import Challenge
from golow.workload.bundle import Bundle

BATCHES = (0, 1)
OTHER_BATCHES = (2, 3)

# A relu that falls on the other side of zero may show in only one draw.
DRAWS = 3


def checking(mode: Mode, device: Device) -> ChosenLevel:
    """The level that runs only for the check: the reference."""
    return ladder.choose(ladder.REFERENCE, mode, device)


Outputs = Callable[[list[int], float, Path], None]
"""Makes a level run batches at a learning rate and write its tensors, as `Worker.outputs` does."""


class Judgement(NamedTuple):
    """The check's result for a level, and notes that a reader of the verdict needs."""

    check: Check
    notes: list[str]


class Standard:
    """The reference on the batches of the check, and the judge of a level's tensors.

    The expensive parts are made only for a level that does not pass without them, and kept for
    later levels: the draws, then the reference on other batches for a second try, then the draws
    on those.
    """

    def __init__(
        self, bundle: Bundle, folder: Path, starter: Starter, eager: Outputs | None = None
    ) -> None:
        """Run eager in float64 and in the working precision; raises `GolowError` if either cannot
        run, since nothing can be proved then.

        eager: runs eager in the working precision, if a worker for it exists; without it, one is
        started.
        """
        self._bundle, self._folder, self._starter = bundle, folder, starter
        self._eager = eager
        self._working = working_rounding(bundle)
        self._widened: dict[tuple[int, ...], Reference] = {}
        self._exact: list[HiddenFile] = []  # what the references read
        rate = self.learning_rate = bundle.workload.optimizer.learning_rate
        with self._both() as (double, rounded):
            if bundle.workload.mode == "train":
                one_step = self._establish(double, rounded, BATCHES[:1])
                self.learning_rate = gentle_rate(rate, one_step)
            reference = self._establish(double, rounded, BATCHES)
        self._references: dict[tuple[int, ...], Reference] = {BATCHES: reference}
        infer = bundle.workload.mode == "infer"
        self._not_answering = not_answering(bundle, reference) if infer else ""

    @property
    def notes(self) -> list[str]:
        """Notes that a reader of every verdict needs."""
        notes = []
        if self.learning_rate < self._bundle.workload.optimizer.learning_rate:
            notes.append(
                f"checked with the learning rate {self.learning_rate:.1g}: with the workload's own "
                "rate, rounding in the first step would dominate the second"
            )
        notes += self._unseen(self._references[BATCHES])
        if self._not_answering:
            notes.append(self._not_answering)
        if self._bundle.workload.random_layers:
            count = len(self._bundle.workload.random_layers)
            notes.append(f"checked with {count} dropout layers switched off; timed with them on")
        if draws := self._bundle.workload.draws:
            notes.append(
                f"the model draws random numbers ({draws} in a pass): they are drawn once, and "
                "given to every level as inputs; the times are without the drawing"
            )
        return notes

    def take_eager(self, eager: Outputs) -> None:
        """Let this worker be eager from now on; the earlier one has ended."""
        self._eager = eager

    def judge(self, outputs: Outputs) -> Judgement:
        """Compare a level with the reference, if needed on the other batches too.

        Raises what ``outputs`` raises, and `GolowError` if the reference cannot run.
        """
        first = self._try(outputs, BATCHES)
        if not may_be_rounding(first.check):
            return first
        second = self._try(outputs, OTHER_BATCHES)
        return first._replace(check=confirm(first.check, second.check))

    def judge_timed(self, worker: Worker) -> Check:
        """Compare the whole result of timed iterations with the reference: in inference of the
        first and the second, in training of the second step, with the state that it left.

        Steps with random layers have no reference; they match. Raises WorkerFailure.
        """
        workload = self._bundle.workload
        if workload.random_layers:
            return Check(verdict="match")
        train = workload.mode == "train"
        kinds = ("loss", "parameter", "buffer", *KEPT) if train else ("output",)
        found = Check(verdict="match")
        for step in (1,) if train else (0, 1):
            found = self._try_timed(worker, step, kinds)
            if found.verdict != "match":
                break
        return found

    def verifier(self, checks: Mapping[str, Check], baseline: str) -> Verifier:
        """What challenges and verifies these levels in a race."""
        spans = choose_spans(self._bundle)
        weights = self._bundle.file("weights.safetensors").stat().st_size
        workload, rate = self._bundle.workload, self.learning_rate
        return Verifier(workload, spans, checks, rate, baseline, weights)

    def judge_left(self, worker: Worker, eager: Worker, steps: Sequence[Steps]) -> str:
        """Why the state that a training's steps left is not that to which eager's lead; empty if it
        may be. Raises WorkerFailure."""
        rounding = self._working.size
        return judge_left(worker, eager, steps, self._bundle, self._folder, rounding)

    def _try_timed(self, worker: Worker, step: int, kinds: tuple[str, ...]) -> Check:
        file = self._folder / "timed.safetensors"
        try:
            worker.time(1, step, challenge=Challenge(learning_rate=self.learning_rate))
            worker.result(file)
            part = Part(f"{step}/", kinds)
            found = check(self._reference(BATCHES), file, part)
            if may_be_rounding(found):
                found = recheck(self._wider(BATCHES), found)
        finally:
            file.unlink(missing_ok=True)
        return found

    def _try(self, outputs: Outputs, batches: tuple[int, ...]) -> Judgement:
        reference = self._reference(batches)
        file = self._folder / "judged.safetensors"
        try:
            outputs(list(batches), self.learning_rate, file)
            found = check(reference, file)
        finally:
            file.unlink(missing_ok=True)
        if not may_be_rounding(found):
            return Judgement(found, [])
        wider = self._wider(batches)
        notes = [f"also judged by {DRAWS} moved references: {n}" for n in self._unseen(wider)]
        return Judgement(recheck(wider, found), notes)

    def _unseen(self, reference: Reference) -> list[str]:
        """A note on the errors that the limits of that reference hide, if they are large."""
        working = self._working
        if reference.rounding <= max(1e-3, 10 * working.size):
            return []
        roundings = "roundings move" if working.moves > 1 else "rounding moves"
        return [
            f"{working.name} {roundings} {reference.most_sensitive} by "
            f"{reference.rounding:.1%} here; the check cannot see smaller errors there"
        ]

    def _reference(self, batches: tuple[int, ...]) -> Reference:
        if batches not in self._references:
            with self._both() as (double, rounded):
                self._references[batches] = self._establish(double, rounded, batches)
        return self._references[batches]

    def _wider(self, batches: tuple[int, ...]) -> Reference:
        # A separate reference, so that no verdict depends on which level came before.
        if batches not in self._widened:
            with self._workers(ladder.REFERENCE) as (double,):
                moved = self._moved(double, batches)
                summed = self._summed(double, batches)
                self._widened[batches] = self._reference(batches).widened(moved, summed)
        return self._widened[batches]

    @contextmanager
    def _both(self) -> Iterator[tuple[Worker, Outputs]]:
        """Eager in float64 and in the working precision."""
        if self._eager is not None:
            with self._workers(ladder.REFERENCE) as (double,):
                yield double, self._eager
        else:
            with self._workers(ladder.REFERENCE, ladder.BASELINE) as (double, eager):
                eager.load(self._bundle.folder)
                yield double, eager.outputs

    @contextmanager
    def _workers(self, *names: str) -> Iterator[list[Worker]]:
        """Workers, started together because most of a start is imports on one thread."""
        try:
            with ExitStack() as stack:
                workers = [stack.enter_context(self._spawn(name)) for name in names]
                yield workers
                for worker in workers:
                    worker.dismiss()
        except WorkerFailure as failure:
            # A study shows the first line; it should be the same for all cells out of memory.
            if failure.kind == "out of memory":
                said, then = "eager and its float64 reference do not fit into memory", "\n"
            else:
                said, then = "eager or its float64 reference cannot run this workload", ": "
            raise GolowError(
                f"{said}, so no level can be checked{then}{failure.message}\n{failure.log}",
                "try a smaller batch or resolution.",
            ) from failure

    def _spawn(self, name: str) -> Worker:
        workload = self._bundle.workload
        chosen = ladder.choose(name, workload.mode, workload.device)
        launch = chosen.prepare(self._bundle, self._folder)
        return self._starter.worker(name, launch, self._bundle)

    def _establish(self, double: Worker, eager: Outputs, batches: tuple[int, ...]) -> Reference:
        exact = self._hidden(self._loaded(double, self._bundle), batches)
        rounded = self._hidden(eager, batches)
        reference = Reference(exact.path, rounded.path, self._working)
        self._exact.append(exact)
        if not reference.finite:
            raise GolowError(
                "the model's float64 reference is not finite: nothing can be checked against it",
                "check the weights and the inputs; --init kaiming gives fresh weights.",
            )
        return reference

    def _moved(self, double: Worker, batches: tuple[int, ...]) -> Iterator[Path]:
        """The float64 tensors of the moved bundle, a file per draw."""
        for draw in range(DRAWS):
            folder = self._folder / f"moved-{draw}"
            try:
                bundle = write_moved_bundle(self._bundle, folder, draw, self._working)
                file = self._hidden(self._loaded(double, bundle), batches)
            finally:
                shutil.rmtree(folder)
            yield file.path

    def _summed(self, double: Worker, batches: tuple[int, ...]) -> Iterator[Path]:
        """The float64 tensors of a training with moved gradients."""
        if self._bundle.workload.mode != "train":
            return
        folder = self._folder / "moved-gradients"
        try:
            shutil.copytree(self._bundle.folder, folder, copy_function=os.link)
            (folder / MOVED).touch()
            file = self._hidden(self._loaded(double, Bundle(folder)), batches)
        finally:
            shutil.rmtree(folder)
        yield file.path

    def _loaded(self, worker: Worker, bundle: Bundle) -> Outputs:
        worker.load(bundle.folder)
        return worker.outputs

    def _hidden(self, outputs: Outputs, batches: tuple[int, ...]) -> HiddenFile:
        """What levels are judged by. It is written where no bundle is, and has lost its name before
        a level is asked for anything: a worker that reads it instead would match."""
        with scratch_folder() as folder:
            file = folder / "expected.safetensors"
            outputs(list(batches), self.learning_rate, file)
            return HiddenFile(file)


def gentle_rate(rate: float, reference: Reference) -> float:
    """The learning rate for the check's training steps, at most the workload's own.

    A step turns the rounding error of the gradients into an error of the weights, and a deep
    network amplifies that until its second step says nothing. The rate returned keeps the error of
    every weight at or below half of what the check allows for anyway.
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
    """The rounding that the workload's precision means for this model; float32's if the precision
    rounds no layer of it."""
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
    """The precision rounds weights with at least this many dimensions: those of convolutions have
    at least three, those of matrix products two. In inference, half precisions store all weights.
    """
    if workload.precision == "default":
        return 3
    return 0 if workload.precision in ("bf16", "fp16") and workload.mode == "infer" else 2


def write_moved_bundle(bundle: Bundle, folder: Path, seed: int, working: Rounding) -> Bundle:
    """The bundle with weights and inputs moved at random: by roundings of the working precision
    if it rounds them, else by float32's."""
    generator = torch.Generator().manual_seed(seed)
    shutil.copytree(bundle.folder, folder, copy_function=os.link)
    for name in ("weights.safetensors", "batches.safetensors"):
        (folder / name).unlink()  # it is a hard link: writing to it would change the original
    weights = load_file(bundle.file("weights.safetensors"))
    save_file(
        moved_weights(weights, bundle.workload, working, generator),
        folder / "weights.safetensors",
    )
    draws = _draw_names(bundle.workload)
    batches = {
        name: tensor
        if name in draws  # exact at every level; moved, one near a threshold would pass it
        else moved(tensor, working if "/input/" in name else FLOAT32, generator)
        for name, tensor in load_file(bundle.file("batches.safetensors")).items()
    }
    save_file(batches, folder / "batches.safetensors")
    return Bundle(folder)


def _draw_names(workload: Workload) -> set[str]:
    """The names of the draws in the file of the batches."""
    end = len(workload.inputs)
    positions = range(end - workload.draws, end)
    return {f"{batch}/input/{n}" for batch in range(workload.batches) for n in positions}


def moved_weights(
    weights: Mapping[str, Tensor], workload: Workload, working: Rounding, generator: torch.Generator
) -> dict[str, Tensor]:
    """A state dict whose weights are moved in the same way."""
    least = _least_dimensions(workload)
    return {
        name: moved(tensor, working if tensor.dim() >= least else FLOAT32, generator)
        for name, tensor in weights.items()
    }


def moved(tensor: Tensor, rounding: Rounding, generator: torch.Generator) -> Tensor:
    """The tensor with each element moved by a few roundings, at random; integers stay."""
    if not tensor.is_floating_point():
        return tensor
    noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    return noise.mul_(rounding.move).add_(1).mul_(tensor).to(tensor.dtype)

"""The standard of a comparison: the float64 reference, and what rounding explains against it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from golow.check.answering import notes_of_outputs
from golow.check.gentle_rate import gentle_rate
from golow.check.left_state import Steps, judge_left
from golow.check.limits_of_flips import rounds_activations, with_limits_of_flips
from golow.check.marked_places import choose_spans
from golow.check.masks_of_ranks import judge_masks
from golow.check.moved_bundle import working_rounding, write_moved_bundle
from golow.check.power import power_of_gradients, power_of_outputs, sees_little, weakness
from golow.check.rule import Reference, check, confirm, may_be_rounding, recheck
from golow.check.steps import verify_steps
from golow.check.tensor_files import Part
from golow.check.timed_results import Verifier
from golow.check.trust import trusted
from golow.check.without_reference import without_reference
from golow.levels import ladder
from golow.levels.starter import Starter
from golow.levels.torch.first_overflow import WATCHED
from golow.levels.torch.flipped_activations import FLIPPED, NEARLY_FLIPPED, UNROUNDED
from golow.levels.torch.gradient_terms import MOVED
from golow.levels.torch.layer_response import RESPONSE
from golow.levels.torch.rounded_operations import KERNELS_ROUNDED, ROUNDED
from golow.records.comparison import Check, Power, StepsCheck
from golow.records.errors import GolowError, Unsupported, WorkerFailure
from golow.records.workload import KEPT
from golow.storage.full_disk import tells_of_full_disk
from golow.storage.hidden_file import HiddenFile
from golow.storage.scratch import scratch_folder, temporary_full
from golow.worker.client import Worker
from golow.worker.protocol import Challenge
from golow.workload.bundle import Bundle

BATCHES = (0, 1)
OTHER_BATCHES = (2, 3)

# A relu that falls on the other side of zero may show in only one draw.
DRAWS = 3


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

    _rounds = False  # activations to whole numbers: a quantised network
    _flipped: Reference | None = None  # for the race of such a network

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
        self._power: Power | None = None
        self._rounds = rounds_activations(bundle.workload)
        self._untold = ""  # why it could not be found out whether eager is right
        self._exact: list[HiddenFile] = []  # what the references read
        rate = self.learning_rate = bundle.workload.optimizer.learning_rate
        with self._both() as (double, rounded):
            if bundle.workload.mode == "train":
                one_step = self._establish(double, rounded, BATCHES[:1])
                self.learning_rate = gentle_rate(rate, one_step)
            reference = self._establish(double, rounded, BATCHES)
        self._references: dict[tuple[int, ...], Reference] = {BATCHES: reference}
        infer = bundle.workload.mode == "infer"
        self._of_outputs = tuple(notes_of_outputs(bundle, reference)) if infer else ()
        self._power = self._measured_power(reference)

    @property
    def notes(self) -> list[str]:
        """Notes that a reader of every verdict needs."""
        notes = []
        if self.learning_rate < self._bundle.workload.optimizer.learning_rate:
            notes.append(
                f"checked with the learning rate {self.learning_rate:.1g}: with the workload's "
                f"rate, rounding in the first step would dominate the second"
            )
        if not self._references[BATCHES].trusts_eager:
            notes.append(
                "eager is farther from float64 than rounding explains: before and after the race, "
                "levels are compared only with the float64 reference; during the race, none is "
                "compared with eager"
            )
        if self._untold:
            notes.append(
                f"the effect of rounding could not be measured ({self._untold}): eager was not "
                f"judged"
            )
        notes += self._unseen(self._references[BATCHES])
        notes += self._of_outputs
        if self._power is not None and self._power.weak:
            notes.append(weakness(self._power, self._bundle.workload.mode))
        if self._bundle.workload.random_layers:
            count = len(self._bundle.workload.random_layers)
            notes.append(f"checked with {count} dropout layers switched off; timed with them on")
        if draws := self._bundle.workload.draws:
            notes.append(
                f"the model draws random numbers ({draws} per pass): they are drawn once, and "
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
        found = self._try(outputs, BATCHES)
        if may_be_rounding(found.check):
            second = self._try(outputs, OTHER_BATCHES)
            found = found._replace(check=confirm(found.check, second.check))
        return self._with_flips(found) if self._rounds and found.check.verdict == "match" else found

    @property
    def power(self) -> Power | None:
        """Power of the check of results; None if it is sufficient or unknown."""
        return self._power

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

    def judge_masks(self, worker: Worker) -> str:
        """Why two ranks drop the same elements; empty if none do. Raises WorkerFailure."""
        return judge_masks(worker, self._bundle, self.learning_rate, self._folder)

    def judge_steps(self, worker: Worker) -> StepsCheck | None:
        """Compare every operation of a level's plan with float64, from what the operation itself
        read; None for a level without a plan. Raises WorkerFailure."""
        try:
            return verify_steps(
                worker, self._bundle, self.learning_rate, self._working, self._folder
            )
        except Unsupported:
            return None

    def verifier(self, checks: Mapping[str, Check], baseline: str) -> Verifier:
        """Verifier of these levels in a race: it writes challenges and checks the answers."""
        spans = choose_spans(self._bundle)
        weights = self._bundle.file("weights.safetensors").stat().st_size
        workload, rate = self._bundle.workload, self.learning_rate
        return Verifier(workload, spans, checks, rate, baseline, weights)

    def judge_left(self, worker: Worker, eager: Worker, steps: Sequence[Steps]) -> str:
        """Why the state that a training run's steps left is not that to which eager's lead; empty
        if it may be. Raises WorkerFailure."""
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
        if not (may_be_rounding(found) or (reference.cancels and found.tensors)):
            return Judgement(found, [])
        wider = self._wider(batches)
        notes = [f"also judged by {DRAWS} perturbed references: {n}" for n in self._unseen(wider)]
        return Judgement(recheck(wider, found), notes)

    def _with_flips(self, found: Judgement) -> Judgement:
        if self._flipped is None:
            with self._workers(ladder.REFERENCE) as (double,):
                flipped = self._marked(double, FLIPPED, BATCHES)
                self._flipped = self._reference(BATCHES).widened([flipped.path])
        check, note = with_limits_of_flips(found.check, self._flipped)
        return Judgement(check, [*found.notes, note])

    def _unseen(self, reference: Reference) -> list[str]:
        """A note on the errors that the limits of that reference hide, if they are large."""
        working = self._working
        if reference.rounding <= max(1e-3, 10 * working.size):
            return []
        roundings = "roundings move" if working.moves > 1 else "rounding moves"
        share = reference.rounding
        moved = f"{share:.1%}" if share <= 1 else "more than its size"
        return [
            f"{working.name} {roundings} {reference.most_sensitive} by {moved} here; the check "
            "cannot see smaller errors there"
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
            with self._workers(ladder.REFERENCE, ladder.baseline(self._bundle.workload.ranks)) as (
                double,
                eager,
            ):
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
            if tells_of_full_disk(f"{failure.message}\n{failure.log}"):
                raise temporary_full() from failure
            raise without_reference(failure) from failure

    def _spawn(self, name: str) -> Worker:
        workload = self._bundle.workload
        ranks = 1 if name == ladder.REFERENCE else workload.ranks
        chosen = ladder.choose(name, workload.mode, workload.device, ranks)
        launch = chosen.prepare(self._bundle, self._folder)
        return self._starter.worker(name, launch, self._bundle)

    def _establish(self, double: Worker, eager: Outputs, batches: tuple[int, ...]) -> Reference:
        exact = self._hidden(self._loaded(double, self._bundle), batches)
        rounded = self._hidden(eager, batches)
        reference = Reference(exact.path, rounded.path, self._working)
        self._exact.append(exact)
        if self._rounds:
            other = self._marked(double, UNROUNDED, batches)
            reference = reference.apart(other.path)
        if not reference.alone().finite:
            raise GolowError(
                f"the model's float64 reference is not finite{self._overflow(double, batches)}: "
                "nothing can be checked against it",
                "check the weights and the inputs; --init kaiming gives fresh weights.",
            )
        draws, summed = partial(self._moved, double, batches), self._summed(double, batches)
        try:
            found = trusted(reference, draws, summed)
        except WorkerFailure as failure:
            self._untold = failure.message
            return reference
        if found.wider is not None:
            self._widened[batches] = found.wider
        return found.reference

    def _measured_power(self, reference: Reference) -> Power | None:
        if self._bundle.workload.mode == "train":
            return power_of_gradients(reference)
        if not sees_little(reference):
            return None
        folder = self._folder / "response"
        try:
            with self._workers(ladder.REFERENCE) as (double,):
                outputs = self._loaded(double, _marked(self._bundle, folder, RESPONSE))
                found = self._hidden(outputs, BATCHES[:1])
            return power_of_outputs(reference, found.path)
        except (GolowError, WorkerFailure):  # it has no gradients, or no memory for them
            return None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _overflow(self, double: Worker, batches: tuple[int, ...]) -> str:
        """The layer from which on the reference is not finite; empty if no layer's result is."""
        try:
            self._marked(double, WATCHED, batches)
        except WorkerFailure as failure:
            return f" from {failure.message} on"
        return ""

    def _moved(
        self, double: Worker, batches: tuple[int, ...], *, rounded: bool = False
    ) -> Iterator[Path]:
        """The float64 tensors of the moved bundle, a file per draw. rounded: every operation rounds
        its result, too, not only kernels in which numbers cancel. Before them those of a quantised
        network with flipped activations."""
        if self._rounds:
            flipped = self._marked(double, NEARLY_FLIPPED, batches)
            yield flipped.path
        for draw in range(DRAWS):
            folder = self._folder / f"moved-{draw}"
            try:
                bundle = write_moved_bundle(self._bundle, folder, draw, self._working)
                grid = self._working.grid._replace(seed=draw)
                (folder / (ROUNDED if rounded else KERNELS_ROUNDED)).write_text(str(grid))
                file = self._hidden(self._loaded(double, bundle), batches)
            finally:
                shutil.rmtree(folder)
            yield file.path

    def _summed(self, double: Worker, batches: tuple[int, ...]) -> Iterator[Path]:
        """The float64 tensors of a training run with moved gradients."""
        if self._bundle.workload.mode != "train":
            return
        moved = self._marked(double, MOVED, batches)
        yield moved.path

    def _marked(self, double: Worker, mark: str, batches: tuple[int, ...]) -> HiddenFile:
        """The float64 tensors of the bundle with one more file, which asks for something."""
        folder = self._folder / f"marked-{mark}"
        try:
            return self._hidden(self._loaded(double, _marked(self._bundle, folder, mark)), batches)
        finally:
            shutil.rmtree(folder)

    def _loaded(self, worker: Worker, bundle: Bundle) -> Outputs:
        worker.load(bundle.folder)
        return worker.outputs

    def _hidden(self, outputs: Outputs, batches: tuple[int, ...]) -> HiddenFile:
        """Hidden copy of the expected values. It is written where no bundle is, and has lost its
        name before a level is asked for anything: a worker that reads it instead would match."""
        with scratch_folder() as folder:
            file = folder / "expected.safetensors"
            outputs(list(batches), self.learning_rate, file)
            return HiddenFile(file)


def _marked(bundle: Bundle, folder: Path, mark: str) -> Bundle:
    """The bundle with one more file, which asks the reference for something."""
    shutil.copytree(bundle.folder, folder, copy_function=os.link)
    (folder / mark).touch()
    return Bundle(folder)

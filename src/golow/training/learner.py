"""One run: one level from one start, epoch by epoch, by the level's two workers.

What goes wrong in the level becomes the run's failure, and what it had trained until then is kept.
What the user can mend, a full disk for one, is raised.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from safetensors.numpy import load_file

from golow.check.standard import Standard
from golow.comparison.entrant import Observer
from golow.measure.sampling import Sampling
from golow.record import GolowError, Unsupported, WorkerFailure
from golow.training import schedule
from golow.training.bundle import Start
from golow.training.data import TrainingData
from golow.training.evaluation import evaluate
from golow.training.pieces import Predicted, Trained, predict_all, train_epoch
from golow.training.record import Epoch, TrainingPlan, TrainingRun
from golow.training.state import complete
from golow.training.store import ROUNDING, RunFolder
from golow.training.workers import Workers
from golow.worker.client import Worker


class Standing(NamedTuple):
    """How far a run is. epoch counts from 1; batch says how many of the epoch's are done. accuracy
    is that of the last evaluation, None before the first; seconds_left are those of this run."""

    level: str
    initialisation: str
    seed: int
    epoch: int
    epochs: int
    batch: int
    batches: int
    loss: float
    accuracy: float | None
    samples_per_second: float
    seconds_left: float


class TrainingObserver(Observer, Protocol):
    """Hears how far a training is; the command line draws it."""

    def counted(self, what: str, done: int, total: int) -> None:
        """So many samples of a part of the data set are prepared."""

    def trained(self, standing: Standing) -> None:
        """A piece of an epoch is done, or an epoch with its evaluation."""


class Course(NamedTuple):
    """What a run is about; for every level the same but for the folder.

    epochs: how many to train of the plan's. scratch: a folder for what nobody keeps.
    """

    plan: TrainingPlan
    data: TrainingData
    initialisation: str
    seed: int
    start: Start
    epochs: int
    folder: RunFolder
    scratch: Path

    @property
    def remark(self) -> str:
        """What tells the run from others of its level, initialisation and seed."""
        return " (rounding)" if self.folder.path.name == ROUNDING else ""

    @property
    def batches(self) -> int:
        """Of an epoch, a smaller last one included."""
        return -(-self.plan.dataset.train_samples // self.plan.batch)

    def rates(self, epoch: int) -> tuple[float, ...]:
        """The learning rates of the epoch's batches."""
        plan = self.plan
        rate = plan.optimizer.learning_rate
        return schedule.rates(
            plan.schedule, rate, epoch=epoch, epochs=plan.epochs, batches=self.batches
        )

    def order(self, epoch: int) -> Path:
        """The file with the epoch's order."""
        file = self.scratch / "order.safetensors"
        try:
            self.data.write_order(file, self.seed, epoch, self.plan.augmentation)
        except GolowError as error:
            hint = f"free some space; golow train --resume {self.folder.training} goes on."
            raise GolowError(error.message, hint) from error
        return file


class Learner:
    """One run of a training on its way; it goes on after the epochs that the folder has."""

    def __init__(self, workers: Workers, course: Course, observer: TrainingObserver) -> None:
        self.workers, self.course, self.observer = workers, course, observer
        self.entrant = workers.entrant
        self.epochs = list(course.folder.resumable())
        self.failure = self.log = ""

    @property
    def done(self) -> bool:
        """Whether every epoch is there, or the training has left the numbers."""
        finite = all(math.isfinite(loss) for epoch in self.epochs[-1:] for loss in epoch.losses)
        return len(self.epochs) >= self.course.epochs or not finite

    def learn(self, standard: Standard | None, place: str) -> TrainingRun:
        """Train the epochs that are left, by the workers that are there or by new ones.

        Raises `GolowError` for what ends the training as a whole, KeyboardInterrupt on Ctrl-C; what
        was trained until then is on the disk.
        """
        workers, plan = self.workers, self.course.plan
        if workers.ready(standard, plan.allow_differs, place):
            self._keep()
            with self._recorded():
                self._learn_epochs()
        # Another run may not begin with what is left of this one: after a failure nobody knows what
        # that is, and what layers draw at random depends on what the process drew before.
        if self.failure or self.course.start.workload.random_layers:
            workers.close()
        return self._keep()

    # ------------------------------------------------------------ epoch by epoch

    def _learn_epochs(self) -> None:
        course, folder = self.course, self.course.folder
        trainer, evaluator = self.workers.trainer, self.workers.evaluator()
        done = len(self.epochs)
        trainer.restore(folder.state(done) if done else course.start.state)
        for number in range(done + 1, course.epochs + 1):
            with Sampling(self.entrant.card) as sampling:
                trained = self._train(trainer, number)
            device, memory = tuple(sampling.quantities()), tuple(self.entrant.held_memory())
            self._save(trainer, number)
            evaluator.restore(folder.state(number))
            outputs = course.scratch / "outputs.safetensors"
            predicted = predict_all(evaluator, course.data, course.plan.batch, outputs)
            epoch = self._epoch(number, trained, predicted)
            epoch = msgspec.structs.replace(epoch, device=device, memory=memory)
            best = max((done.eval_accuracy or 0.0 for done in self.epochs), default=-1.0)
            weights = state_dict(folder.state(number))
            folder.write_weights(weights, number, best=(epoch.eval_accuracy or 0.0) > best)
            folder.add(epoch)
            self.epochs.append(epoch)
            seconds = trained.seconds / course.batches
            self._tell(number, course.batches, trained.losses[-1], seconds)
            _require_finite(number, trained)

    def _train(self, trainer: Worker, number: int) -> Trained:
        course = self.course

        def told(batch: int, loss: float, seconds: float) -> None:
            if batch < course.batches:
                self._tell(number, batch, loss, seconds)

        return train_epoch(trainer, course.data, course.order(number), course.rates(number), told)

    def _save(self, trainer: Worker, number: int) -> None:
        folder = self.course.folder
        try:
            trainer.save(folder.draft())
        except WorkerFailure:
            # A full disk is not the level's fault; where there is none, it is.
            folder.require_room(2 * self.course.start.state.stat().st_size)
            raise
        complete(folder.draft(), self.course.start.state, self.course.start.first)
        folder.keep_state(number)

    def _epoch(self, number: int, trained: Trained, predicted: Predicted) -> Epoch:
        course, facts = self.course, self.course.plan.dataset
        found = evaluate(predicted.outputs, course.data.test_labels, len(facts.classes))
        return Epoch(
            epoch=number,
            losses=trained.losses,
            train_seconds=trained.seconds,
            train_samples=facts.train_samples,
            eval_seconds=predicted.seconds,
            eval_samples=facts.test_samples,
            eval_loss=found.loss,
            eval_accuracy=found.accuracy,
            confusion=found.confusion,
            checksum=trained.checksum,
            learning_rate=course.rates(number)[-1],
            wait_share=trained.wait_share,
        )

    # ------------------------------------------------------------ how it is done

    def _keep(self) -> TrainingRun:
        """Write down what is known of the run."""
        course = self.course
        run = TrainingRun(
            level=self.entrant.name,
            initialisation=course.initialisation,
            seed=course.seed,
            workload=course.start.workload,
            check=self.entrant.check,
            epochs=tuple(self.epochs),
            life=tuple(self.entrant.life()),
            notes=tuple(self.entrant.notes),
            failure=self.failure,
            log=self.log or self.entrant.log,
        )
        course.folder.write(run)
        return run

    def _tell(self, number: int, batch: int, loss: float, seconds: float) -> None:
        """seconds: of a batch, in training."""
        course, last = self.course, self.epochs[-1] if self.epochs else None
        left = seconds * ((course.epochs - number + 1) * course.batches - batch)
        if last is not None and last.eval_seconds is not None:
            left += last.eval_seconds * (course.epochs - len(self.epochs))
        self.observer.trained(
            Standing(
                level=self.entrant.name + course.remark,
                initialisation=course.initialisation,
                seed=course.seed,
                epoch=number,
                epochs=course.epochs,
                batch=batch,
                batches=course.batches,
                loss=loss,
                accuracy=last.eval_accuracy if last else None,
                samples_per_second=course.plan.batch / seconds,
                seconds_left=left,
            )
        )

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Turn what goes wrong inside into the run's failure."""
        try:
            yield
        except GolowError:
            raise
        except Unsupported as error:
            self.failure = f"unsupported: {error.reason}"
        except WorkerFailure as error:
            self.failure, self.log = error.message, error.log
        except Exception as error:  # a fault of the level's own code is its result too
            self.failure, self.log = f"{type(error).__name__}: {error}", traceback.format_exc()


def state_dict(file: Path) -> dict[str, np.ndarray]:
    """Parameters and buffers in a worker's state, under the state dict's names."""
    named = {name.partition("/"): array for name, array in load_file(file).items()}
    return {
        name: array for (kind, _, name), array in named.items() if kind in ("parameter", "buffer")
    }


def _require_finite(number: int, trained: Trained) -> None:
    for batch, loss in enumerate(trained.losses):
        if not math.isfinite(loss):
            raise WorkerFailure(
                "diverged", f"its loss was not finite from batch {batch + 1} of epoch {number} on"
            )

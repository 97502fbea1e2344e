"""One run: a level trains from one start, epoch by epoch, with its two workers.

An error in the level becomes the run's failure, and the epochs before it are kept. Errors that the
user can fix, such as a full disk, are raised.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
from safetensors.numpy import load_file

from golow.check.reference import Standard
from golow.measure.gpu.sampling import Sampling
from golow.programs.training.evaluation import evaluate
from golow.programs.training.mistakes import find_mistakes
from golow.programs.training.observer import TrainingObserver, TrainingProgress
from golow.programs.training.pieces import Predicted, Trained, predict_all, train_epoch
from golow.programs.training.run_spec import RunSpec
from golow.programs.training.state import complete
from golow.programs.training.training_record import Epoch, TrainingRun
from golow.programs.training.workers import Workers
from golow.records.errors import GolowError, Unsupported, WorkerFailure
from golow.worker.client import Worker
from golow.worker.ranks import of_rank


class Learner:
    """One run of a training; it continues after the epochs in the folder."""

    def __init__(self, workers: Workers, spec: RunSpec, observer: TrainingObserver) -> None:
        self.workers, self.spec, self.observer = workers, spec, observer
        self.level = workers.level
        self.epochs = list(spec.folder.resumable())
        self.mistakes = spec.folder.mistakes(len(self.epochs))
        self.failure = self.log = ""

    @property
    def done(self) -> bool:
        """True if every epoch is trained, or the loss is no longer finite."""
        finite = all(math.isfinite(loss) for epoch in self.epochs[-1:] for loss in epoch.losses)
        return len(self.epochs) >= self.spec.epochs or not finite

    def learn(self, standard: Standard | None, place: str) -> TrainingRun:
        """Train the remaining epochs, with the existing workers or new ones.

        Raises `GolowError` for an error that ends the whole training, KeyboardInterrupt on Ctrl-C;
        the epochs trained until then are on disk.
        """
        workers, plan = self.workers, self.spec.plan
        trainer = workers.ready(standard, plan.allow_differs, place)
        if trainer is not None:
            self._keep()
            with self._recorded():
                self._learn_epochs(trainer)
        # The next run must not inherit from this one: after a failure the state of the workers is
        # unknown, and what random layers draw depends on what the process drew before.
        if self.failure or self.spec.start.workload.random_layers:
            workers.close()
        return self._keep()

    # ------------------------------------------------------------ epoch by epoch

    def _learn_epochs(self, trainer: Worker) -> None:
        spec, folder = self.spec, self.spec.folder
        evaluator = self.workers.evaluator()
        done = len(self.epochs)
        trainer.restore(folder.state(done) if done else spec.start.state)
        for number in range(done + 1, spec.epochs + 1):
            with Sampling(self.level.card) as sampling:
                trained = self._train(trainer, number)
            device, memory = tuple(sampling.quantities()), tuple(self.level.held_memory())
            self._save(trainer, number)
            evaluator.restore(folder.state(number))
            outputs = spec.scratch / "outputs.safetensors"
            predicted = predict_all(evaluator, spec.data, spec.plan.batch, outputs)
            epoch = self._epoch(number, trained, predicted)
            epoch = msgspec.structs.replace(epoch, device=device, memory=memory)
            before = max((done.eval_accuracy or 0.0 for done in self.epochs), default=-1.0)
            best = (epoch.eval_accuracy or 0.0) > before
            folder.write_weights(state_dict(folder.state(number)), number, best)
            images = spec.data.test_images()
            if best and images is not None:
                labels = spec.data.test_labels
                self.mistakes = find_mistakes(predicted.outputs, labels, images, number)
                folder.write_mistakes(self.mistakes)
            folder.add(epoch)
            self.epochs.append(epoch)
            seconds = trained.seconds / spec.batches
            self._tell(number, spec.batches, trained.losses[-1], seconds)
            _require_finite(number, trained)

    def _train(self, trainer: Worker, number: int) -> Trained:
        spec = self.spec

        def told(batch: int, loss: float, seconds: float) -> None:
            if batch < spec.batches:
                self._tell(number, batch, loss, seconds)

        return train_epoch(trainer, spec.data, spec.write_order(number), spec.rates(number), told)

    def _save(self, trainer: Worker, number: int) -> None:
        folder = self.spec.folder
        try:
            trainer.save(folder.draft())
        except WorkerFailure:
            # A full disk is not the level's fault; any other cause is.
            folder.require_room(2 * self.spec.start.state.stat().st_size)
            raise
        complete(folder.draft(), self.spec.start.state, self.spec.start.first)
        folder.keep_state(number)

    def _epoch(self, number: int, trained: Trained, predicted: Predicted) -> Epoch:
        spec, facts = self.spec, self.spec.plan.dataset
        found = evaluate(predicted.outputs, spec.data.test_labels, len(facts.classes))
        return Epoch(
            epoch=number,
            losses=trained.losses,
            train_seconds=trained.seconds,
            train_samples=spec.plan.trained_samples,
            eval_seconds=predicted.seconds,
            eval_samples=facts.test_samples,
            eval_loss=found.loss,
            eval_accuracy=found.accuracy,
            confusion=found.confusion,
            checksum=trained.checksum,
            learning_rate=spec.rates(number)[-1],
            wait_share=trained.wait_share,
        )

    # ------------------------------------------------------------ how it is done

    def _keep(self) -> TrainingRun:
        """Write what is known about the run to its folder."""
        spec = self.spec
        run = TrainingRun(
            level=self.level.name,
            initialisation=spec.initialisation,
            seed=spec.seed,
            workload=spec.start.workload,
            check=self.level.check,
            epochs=tuple(self.epochs),
            mistakes=self.mistakes,
            life=tuple(self.level.life()),
            notes=tuple(self.level.notes),
            failure=self.failure,
            log=self.log or self.level.log,
        )
        spec.folder.write(run)
        return run

    def _tell(self, number: int, batch: int, loss: float, seconds: float) -> None:
        """Report progress. seconds: per training batch."""
        spec, last = self.spec, self.epochs[-1] if self.epochs else None
        left = seconds * ((spec.epochs - number + 1) * spec.batches - batch)
        if last is not None and last.eval_seconds is not None:
            left += last.eval_seconds * (spec.epochs - len(self.epochs))
        self.observer.trained(
            TrainingProgress(
                level=self.level.name + spec.remark,
                initialisation=spec.initialisation,
                seed=spec.seed,
                epoch=number,
                epochs=spec.epochs,
                batch=batch,
                batches=spec.batches,
                loss=loss,
                accuracy=last.eval_accuracy if last else None,
                samples_per_second=spec.plan.batch * spec.plan.ranks / seconds,
                seconds_left=left,
            )
        )

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Turn an error inside into the run's failure."""
        try:
            yield
        except GolowError:
            raise
        except Unsupported as error:
            self.failure = f"unsupported: {error.reason}"
        except WorkerFailure as error:
            self.failure, self.log = error.message, error.log
        except Exception as error:  # an error in the level's own code is its result too
            self.failure, self.log = f"{type(error).__name__}: {error}", traceback.format_exc()


def state_dict(file: Path) -> dict[str, np.ndarray]:
    """Parameters and buffers in a worker's state, those of rank 0 if there are several, with the
    names of the state dict."""
    state = of_rank(load_file(file), 0)
    named = {name.partition("/"): array for name, array in state.items()}
    return {
        name: array for (kind, _, name), array in named.items() if kind in ("parameter", "buffer")
    }


def _require_finite(number: int, trained: Trained) -> None:
    for batch, loss in enumerate(trained.losses):
        if not math.isfinite(loss):
            raise WorkerFailure(
                "diverged", f"its loss was not finite from batch {batch + 1} of epoch {number} on"
            )

"""The description of one run of a training."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from golow.programs.training import schedule
from golow.programs.training.bundle import Start
from golow.programs.training.data import TrainingData
from golow.programs.training.store import ROUNDING, RunFolder
from golow.programs.training.training_record import TrainingPlan
from golow.records.errors import GolowError
from golow.storage.shell_words import shell_word


class RunSpec(NamedTuple):
    """A run from one start; only the folder differs between levels.

    epochs: how many of the plan's epochs to train. scratch: a folder for temporary files.
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
        """Remark that tells the run from others of its level, initialisation and seed."""
        return " (rounding)" if self.folder.path.name == ROUNDING else ""

    @property
    def batches(self) -> int:
        """Batches per epoch, including a smaller last one."""
        return self.plan.steps

    def rates(self, epoch: int) -> tuple[float, ...]:
        """The learning rates of the epoch's batches."""
        plan = self.plan
        rate = plan.optimizer.learning_rate
        return schedule.rates(
            plan.schedule, rate, epoch=epoch, epochs=plan.epochs, batches=self.batches
        )

    def write_order(self, epoch: int) -> Path:
        """Write the epoch's order and return the file, which the next epoch overwrites."""
        file = self.scratch / "order.safetensors"
        try:
            self.data.write_order(file, self.seed, epoch, self.plan.augmentation)
        except GolowError as error:
            again = f"golow train --resume {shell_word(self.folder.training)}"
            hint = f"free some space, then run {again}."
            raise GolowError(error.message, hint) from error
        return file

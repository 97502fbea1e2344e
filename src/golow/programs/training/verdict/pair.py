"""The pair of runs that is compared, and the judgement on it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from golow.programs.training.training_record import CurveWord, Epoch, TrainingRun
from golow.records.comparison import Quantity

Numbers = npt.NDArray[np.float64]


class Judgement(NamedTuple):
    """A verdict with its reason and the figures behind it."""

    word: CurveWord
    reason: str
    figures: tuple[Quantity, ...] = ()


class Pair(NamedTuple):
    """A level and eager from the same start, on the same batches."""

    level: TrainingRun
    eager: TrainingRun

    @property
    def seed(self) -> int:
        """The seed of both runs."""
        return self.level.seed

    @property
    def level_is_finite(self) -> bool:
        """True if all losses of the level are finite."""
        return _finite(self.level)

    @property
    def eager_is_finite(self) -> bool:
        """True if all losses of eager are finite."""
        return _finite(self.eager)

    @property
    def least_distance(self) -> float:
        """How far apart the losses of two correct levels may be from the first step on: each may
        differ from float64 by what the check allows for the first loss."""
        for tensor in self.level.check.tensors:
            if tensor.name.endswith("/loss/loss"):
                return 2 * tensor.limit
        return 0.0


def step_losses(run: TrainingRun) -> Numbers:
    """The training loss of every step."""
    return np.array([loss for epoch in run.epochs for loss in epoch.losses], np.float64)


def resolution(epoch: Epoch) -> float:
    """Standard error of the accuracy on a test set of this size. One right and one wrong sample
    are added, so that it is above 0 for an accuracy of 0 or 1 too."""
    rows = epoch.eval_samples + 2
    share = ((epoch.eval_accuracy or 0.0) * epoch.eval_samples + 1) / rows
    return math.sqrt(share * (1 - share) / rows)


def _finite(run: TrainingRun) -> bool:
    evaluated = (epoch.eval_loss for epoch in run.epochs if epoch.eval_loss is not None)
    return bool(np.isfinite(step_losses(run)).all()) and all(map(math.isfinite, evaluated))

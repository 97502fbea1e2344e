"""A training run's records as curves over seeds, for figures and exports.

A number that is missing, NaN or infinite is left out of mean, minimum and maximum; where no seed
has one, the curve has a gap (NaN).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import mean, median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from golow.programs.training.training_record import Epoch, Training, TrainingRun

Numbers = NDArray[np.float64]
Masked = Any  # a masked array, whose types numpy leaves open

# Points for the losses of a whole training run that a figure of a page's width can show.
LOSS_POINTS = 200


class Band(NamedTuple):
    """Mean, minimum and maximum over seeds at each point.

    epochs: the points' places in epochs. samples, seconds, joules: their places in samples seen, in
    training time and in energy of the device (evaluation not counted), mean over the seeds; joules
    are NaN from the first point on whose energy no seed has.
    """

    epochs: Numbers
    samples: Numbers
    seconds: Numbers
    joules: Numbers
    middle: Numbers
    low: Numbers
    high: Numbers

    @property
    def empty(self) -> bool:
        """True if there is nothing to draw."""
        return not np.isfinite(self.middle).any()


class Spread(NamedTuple):
    """One number of a level: mean, minimum and maximum over its runs."""

    middle: float
    low: float
    high: float


def runs_of(
    training: Training, level: str, initialisation: str | None = None, seed: int | None = None
) -> list[TrainingRun]:
    """The level's runs from one initialisation and seed or from all, in the record's order."""
    return [
        run
        for run in training.runs
        if run.level == level
        and initialisation in (None, run.initialisation)
        and seed in (None, run.seed)
    ]


def epochs_of(training: Training) -> int:
    """The last epoch that any run has finished."""
    return max((epoch.epoch for run in training.runs for epoch in run.epochs), default=0)


# ---------------------------------------------------------------- curves


def accuracy(training: Training, level: str, initialisation: str, seed: int | None = None) -> Band:
    """Test accuracy after each epoch, a share; of one seed or over all."""
    runs = runs_of(training, level, initialisation, seed)
    after = _Points(pieces=1, place=1.0)
    return _band(runs, epochs_of(training), after, lambda epoch: [epoch.eval_accuracy])


def training_loss(
    training: Training, level: str, initialisation: str, seed: int | None = None
) -> Band:
    """Training loss, averaged over each of the `loss_pieces` of an epoch, at the piece's middle; of
    one seed or over all."""
    runs = runs_of(training, level, initialisation, seed)
    within = _Points(pieces=loss_pieces(training), place=0.5)
    return _band(
        runs, epochs_of(training), within, lambda epoch: _means(epoch.losses, within.pieces)
    )


def loss_pieces(training: Training) -> int:
    """The number of pieces into which an epoch's steps are averaged for a readable curve."""
    steps = max((len(epoch.losses) for run in training.runs for epoch in run.epochs), default=1)
    return max(1, min(steps, LOSS_POINTS // max(1, epochs_of(training))))


class _Points(NamedTuple):
    """Points per epoch, and the place of each within its piece of the epoch: 1 is the end."""

    pieces: int
    place: float


def _band(
    runs: Sequence[TrainingRun],
    epochs: int,
    points: _Points,
    values: Callable[[Epoch], Sequence[float | None]],
) -> Band:
    """Tables with one row per run and one column per piece of an epoch, reduced over the rows."""
    pieces = points.pieces

    def table(numbers: Callable[[Epoch], Sequence[float | None] | float | None]) -> Masked:
        found = np.full((max(1, len(runs)), epochs * pieces), np.nan)
        for row, run in enumerate(runs):
            for epoch in run.epochs:
                columns = slice((epoch.epoch - 1) * pieces, epoch.epoch * pieces)
                found[row, columns] = np.array(numbers(epoch), np.float64)
        return np.ma.masked_invalid(found)

    def places(amount: Callable[[Epoch], float | None], missing: float) -> Numbers:
        of_piece = table(amount).mean(axis=0).filled(missing) / pieces
        return np.asarray(np.cumsum(of_piece) - (1 - points.place) * of_piece, np.float64)

    found = table(values)
    middle, low, high = (
        np.asarray(reduced.filled(np.nan), np.float64)
        for reduced in (found.mean(axis=0), found.min(axis=0), found.max(axis=0))
    )
    return Band(
        epochs=(np.arange(epochs * pieces) + points.place) / pieces,
        samples=places(lambda epoch: epoch.train_samples, 0.0),
        seconds=places(lambda epoch: epoch.train_seconds, 0.0),
        joules=places(_joules, math.nan),
        middle=middle,
        low=low,
        high=high,
    )


def _joules(epoch: Epoch) -> float | None:
    """Joules of the device in training; None if they were not measured."""
    return next((figure.value for figure in epoch.device if figure.name == "energy"), None)


def _means(losses: Sequence[float], pieces: int) -> list[float]:
    """The mean of each piece of an epoch; NaN if a piece has no step, not finite if one of its
    steps is not."""
    parts = np.array_split(np.asarray(losses, np.float64), pieces)
    with np.errstate(invalid="ignore"):
        return [float(part.mean()) if part.size else math.nan for part in parts]


# ---------------------------------------------------------------- one number a run


def mean_loss(epoch: Epoch) -> float | None:
    """Mean training loss of the epoch's steps; None if it has none."""
    return _means(epoch.losses, 1)[0] if epoch.losses else None


def sample_seconds(run: TrainingRun, phase: str) -> float | None:
    """Seconds per sample in training (``train``) or evaluation (``eval``): the median over the
    run's epochs, so that a first epoch that compiles or fills caches does not distort it."""
    found = [
        seconds / samples
        for epoch in run.epochs
        for seconds, samples in [_phase(epoch, phase)]
        if seconds is not None and math.isfinite(seconds) and samples > 0
    ]
    return median(found) if found else None


def sample_spread(training: Training, level: str, phase: str) -> Spread | None:
    """`sample_seconds` over all of the level's runs; None if no run has any."""
    found = [sample_seconds(run, phase) for run in runs_of(training, level)]
    known = [seconds for seconds in found if seconds is not None]
    return Spread(mean(known), min(known), max(known)) if known else None


def best_epoch(run: TrainingRun) -> Epoch | None:
    """The epoch of highest test accuracy, the first if several; None without evaluation."""
    rated = [(_accuracy(epoch), -epoch.epoch, epoch) for epoch in run.epochs]
    rated = [entry for entry in rated if math.isfinite(entry[0])]
    return max(rated, key=lambda entry: entry[:2])[2] if rated else None


def best_run(runs: Sequence[TrainingRun]) -> tuple[TrainingRun, Epoch] | None:
    """The run with the best epoch of all, and that epoch; the first if several."""
    found = [(run, epoch) for run in runs if (epoch := best_epoch(run)) is not None]
    return max(found, key=lambda entry: _accuracy(entry[1]), default=None)


def diverged(run: TrainingRun) -> int | None:
    """The first epoch with a training loss that is not finite; None if all are finite."""
    for epoch in run.epochs:
        if not all(map(math.isfinite, epoch.losses)):
            return epoch.epoch
    return None


def _accuracy(epoch: Epoch) -> float:
    return math.nan if epoch.eval_accuracy is None else epoch.eval_accuracy


def _phase(epoch: Epoch, phase: str) -> tuple[float | None, int]:
    if phase == "train":
        return epoch.train_seconds, epoch.train_samples
    return epoch.eval_seconds, epoch.eval_samples

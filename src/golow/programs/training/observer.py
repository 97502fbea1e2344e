"""The progress of a running training; the command line draws it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from golow.observer import Observer, Silent


class TrainingProgress(NamedTuple):
    """How far a run has come.

    epoch: counts from 1. batch: how many of the epoch's batches are done. accuracy: of the last
    evaluation, None before the first. seconds_left: of this run.
    """

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
    """Receives the progress of a training run."""

    def counted(self, what: str, done: int, total: int) -> None:
        """done of total samples are prepared. what: the part of the data set."""

    def trained(self, progress: TrainingProgress) -> None:
        """A piece of an epoch is done, or an epoch with its evaluation."""


class SilentTraining(Silent):
    """An observer that does nothing."""

    def counted(self, what: str, done: int, total: int) -> None:
        """Do nothing."""

    def trained(self, progress: TrainingProgress) -> None:
        """Do nothing."""

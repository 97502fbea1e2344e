"""Run an epoch and its evaluation in pieces of about a second, to report progress."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from safetensors.numpy import load_file

from golow.programs.training.data import TrainingData
from golow.worker.client import Worker
from golow.worker.protocol import Checksum

PIECE_SECONDS = 1.0
FASTER = 8  # at most this many times the batches of the piece before: the first one warms up


class Trained(NamedTuple):
    """The result of a training epoch. losses: of every batch, NaN where one is not finite.
    wait_share: run-queue wait of the worker's threads over its seconds; None if the system does
    not report it."""

    losses: tuple[float, ...]
    seconds: float
    checksum: Checksum
    wait_share: float | None


class Predicted(NamedTuple):
    """Outputs for the whole test set [rows, scores], float32, and the seconds they took."""

    outputs: np.ndarray
    seconds: float


class Pace:
    """How many batches take about `PIECE_SECONDS`."""

    def __init__(self) -> None:
        self.batches = 1

    def took(self, batches: int, seconds: float) -> None:
        """Adjust to a piece of this many batches that took so long."""
        fitting = PIECE_SECONDS * batches / max(seconds, 1e-9)
        self.batches = max(1, min(int(fitting), FASTER * batches))


def train_epoch(
    worker: Worker,
    data: TrainingData,
    order: Path,
    rates: Sequence[float],
    told: Callable[[int, float, float], None],
) -> Trained:
    """Train on as many batches of the order as there are rates.

    told: called after each piece with the batches done, the last loss and the seconds per batch.
    """
    losses: list[float] = []
    nanoseconds, checksum = 0, cast(Checksum, 0)
    pace, meter = Pace(), worker.meter
    before = meter.read()
    while len(losses) < len(rates):
        first = len(losses)
        part = rates[first : first + pace.batches]
        report = worker.epoch(
            data.train,
            order,
            part,
            scale=data.scale,
            shift=data.shift,
            first=first,
            checksum=checksum,
        )
        losses += [math.nan if loss is None else loss for loss in report.losses]
        checksum, nanoseconds = report.checksum, nanoseconds + report.nanoseconds
        seconds = report.nanoseconds / 1e9
        pace.took(len(part), seconds)
        told(len(losses), losses[-1], seconds / len(part))
    waited = meter.wait_share(before, meter.read(), nanoseconds)
    return Trained(tuple(losses), nanoseconds / 1e9, checksum, waited)


def predict_all(worker: Worker, data: TrainingData, batch: int, file: Path) -> Predicted:
    """Run the whole test set. batch: samples per batch. file: for the outputs of a piece."""
    batches = -(-data.facts.test_samples // batch)
    outputs: list[np.ndarray] = []
    done, nanoseconds, pace = 0, 0, Pace()
    while done < batches:
        count = min(pace.batches, batches - done)
        report = worker.predict(
            data.test, file, first=done, batches=count, scale=data.scale, shift=data.shift
        )
        outputs.append(load_file(file)["output"])
        done, nanoseconds = done + count, nanoseconds + report.nanoseconds
        pace.took(count, report.nanoseconds / 1e9)
    return Predicted(np.concatenate(outputs), nanoseconds / 1e9)

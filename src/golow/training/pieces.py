"""An epoch and its evaluation asked of a worker in pieces of about a second, for progress."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load_file

from golow.training.data import TrainingData
from golow.worker.client import Worker
from golow.worker.scheduling import ContentionMeter

PIECE_SECONDS = 1.0
FASTER = 8  # times as many batches as in the piece before, at most: the first one warms up


class Trained(NamedTuple):
    """The result of a training epoch. losses: of every batch, NaN where one is not finite.
    wait_share: run-queue wait of the worker's threads over its seconds; None where the system does
    not tell."""

    losses: tuple[float, ...]
    seconds: float
    checksum: int
    wait_share: float | None


class Predicted(NamedTuple):
    """Outputs for the whole test part [rows, scores], float32, and the seconds that they took."""

    outputs: np.ndarray
    seconds: float


class Pace:
    """How many batches come to about `PIECE_SECONDS`."""

    def __init__(self) -> None:
        self.batches = 1

    def took(self, batches: int, seconds: float) -> None:
        """That many batches took so long."""
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

    told hears of each piece: how many batches are done, the loss of the last, seconds a batch.
    """
    losses: list[float] = []
    nanoseconds = checksum = 0
    pace, meter = Pace(), ContentionMeter(worker.pid)
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
    """Run the whole test part in batches of so many samples; file is where a piece is written."""
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

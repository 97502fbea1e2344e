"""The frozen records of a training: what was asked, what each epoch brought, what it means.

Format history (``FORMAT_VERSION`` is written into every plan):

1   November 2026, the first: ``plan.json``, one ``run.json`` a run, one file an epoch.

As in ``record.py`` a number is a `Quantity`, seconds and bytes are plain, and nothing here imports
torch.
"""

from __future__ import annotations

from typing import Literal

from golow.record import (
    Check,
    Device,
    Environment,
    Optimizer,
    Precision,
    Quantity,
    Record,
    Workload,
)

FORMAT_VERSION = 1

ScheduleKind = Literal["constant", "step", "cosine"]
CurveWord = Literal["same", "differs", "unclear"]


# ---------------------------------------------------------------- what is asked


class DatasetFacts(Record, frozen=True, kw_only=True):
    """A data set as it was prepared: what was read, and the checksums by which it is known again.

    shape: of one picture, (C, H, W). source: where it came from and what was done to it.
    """

    name: str
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    train_samples: int
    test_samples: int
    train_checksum: str
    test_checksum: str
    source: str


class Schedule(Record, frozen=True, kw_only=True):
    """How the learning rate goes from batch to batch; `golow.training.schedule` has the formulas.

    warm_up_epochs: how long it rises to its full size. step_epochs and factor: for ``step``, by
    what it is multiplied and how often.
    """

    kind: ScheduleKind = "constant"
    warm_up_epochs: float = 0.0
    step_epochs: int = 30
    factor: float = 0.1


class Augmentation(Record, frozen=True, kw_only=True):
    """What is done to each training picture at random: mirrored left-right half of the time,
    padded by ``padding`` zeros and cut to its size again."""

    flip: bool = False
    padding: int = 0


class TrainingPlan(Record, frozen=True, kw_only=True):
    """All that decides a training but the levels' own arithmetic; `golow train --resume` needs no
    more than this.

    model: as it was named. initialisations: names of golow's own, or ``own`` for what the model's
    constructor does. data_root: where the data set's files lie, empty for the usual place.
    voc_label: which object gives a picture of VOC its label. workers: commands of the user's own
    levels, by name. live: the model was a module of a running program, which no file holds.
    """

    format_version: int
    id: str
    created: str
    model: str
    dataset: DatasetFacts
    levels: tuple[str, ...]
    initialisations: tuple[str, ...]
    seeds: tuple[int, ...]
    epochs: int
    batch: int
    optimizer: Optimizer
    schedule: Schedule
    augmentation: Augmentation
    precision: Precision
    device: Device
    threads: int
    environment: Environment
    data_root: str = ""
    voc_label: Literal["first", "largest"] = "first"
    workers: dict[str, tuple[str, ...]] = {}
    allow_differs: bool = False
    live: bool = False


# ---------------------------------------------------------------- what is found


class Epoch(Record, frozen=True, kw_only=True):
    """One epoch of one run, 1 the first.

    losses: of every batch, in order. train_seconds and eval_seconds: by the worker's clock.
    confusion: row = true class, column = predicted class, counts. checksum: of the pixels and
    labels that the level consumed. learning_rate: of the last batch. wait_share: run-queue wait of
    the worker's threads over its time in training; None where the system does not tell. device:
    what a GPU did while it trained (``utilization`` as a share, ``energy`` J, ``power`` W,
    ``clock`` MHz). memory: of the training worker (``resident`` B; on a GPU ``device_used`` B, or
    ``device_added`` B where the driver does not tell programs apart).
    """

    epoch: int
    losses: tuple[float, ...]
    train_seconds: float
    train_samples: int
    eval_seconds: float | None = None
    eval_samples: int = 0
    eval_loss: float | None = None
    eval_accuracy: float | None = None
    confusion: tuple[tuple[int, ...], ...] = ()
    checksum: int = 0
    learning_rate: float = 0.0
    wait_share: float | None = None
    device: tuple[Quantity, ...] = ()
    memory: tuple[Quantity, ...] = ()


class TrainingRun(Record, frozen=True, kw_only=True):
    """One level with one initialisation and one seed, whatever became of it.

    life: ``build``, ``load`` and ``ready`` s. failure: why it ended early; empty if it did not.
    log: the end of what its worker wrote, where it failed.
    """

    level: str
    initialisation: str
    seed: int
    workload: Workload
    check: Check
    epochs: tuple[Epoch, ...] = ()
    life: tuple[Quantity, ...] = ()
    notes: tuple[str, ...] = ()
    failure: str = ""
    log: str = ""


class CurveVerdict(Record, frozen=True, kw_only=True):
    """Whether a level trained the same network as eager, over all seeds of an initialisation.

    figures: the differences to eager and what was allowed, each with its 95% interval where seeds
    give one.
    """

    level: str
    initialisation: str
    word: CurveWord
    reason: str
    figures: tuple[Quantity, ...] = ()


class Training(Record, frozen=True, kw_only=True):
    """A whole training: the plan, a run for each level, initialisation and seed, the verdicts.

    roundings: the baseline's first epochs once more, from weights a few roundings away, one run for
    each initialisation: by how far rounding alone takes two curves apart. No level among others.
    """

    plan: TrainingPlan
    runs: tuple[TrainingRun, ...]
    verdicts: tuple[CurveVerdict, ...] = ()
    notes: tuple[str, ...] = ()
    roundings: tuple[TrainingRun, ...] = ()

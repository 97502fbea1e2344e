"""The frozen records of a training run: the plan, the epochs of each run, and the verdicts.

Format history (``FORMAT_VERSION`` is written into every plan):

2   December 2026: ``TrainingPlan.ranks``; with several, ``Epoch.checksum`` is one of each.
1   November 2026, the first: ``plan.json``, one ``run.json`` per run, one file per epoch.

As in ``records/record.py``, a number is a `Quantity`, seconds and bytes are plain numbers, and
nothing here imports torch.
"""

from __future__ import annotations

from typing import Literal

from golow.records.comparison import Check, Environment, Quantity
from golow.records.record import Record
from golow.records.workload import Device, Optimizer, Precision, Workload
from golow.worker.feed import last_batch, steps
from golow.worker.protocol import Checksum

FORMAT_VERSION = 2

ScheduleKind = Literal["constant", "step", "cosine"]
CurveWord = Literal["same", "differs", "unclear"]


# ---------------------------------------------------------------- the request


class DatasetFacts(Record, frozen=True, kw_only=True):
    """A data set as it was prepared: what was read, and checksums that identify it.

    shape: of one sample: an image (C, H, W), or a text (sequence,). source: where it came from and
    what was done to it.
    """

    name: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    train_samples: int
    test_samples: int
    train_checksum: str
    test_checksum: str
    source: str


class Schedule(Record, frozen=True, kw_only=True):
    """Schedule of the learning rate; `golow.programs.training.schedule` has the formulas.

    warm_up_epochs: number of epochs over which it rises to its full value. step_epochs, factor:
    with kind ``step`` it is multiplied by ``factor`` every ``step_epochs`` epochs.
    """

    kind: ScheduleKind = "constant"
    warm_up_epochs: float = 0.0
    step_epochs: int = 30
    factor: float = 0.1


class Augmentation(Record, frozen=True, kw_only=True):
    """Random changes to each training image. flip: mirror it left to right with probability 1/2.
    padding: add this many zeros on each side and crop to the original size at a random position."""

    flip: bool = False
    padding: int = 0


class TrainingPlan(Record, frozen=True, kw_only=True):
    """Everything that decides a training run except the levels' own arithmetic; `golow train
    --resume` needs nothing else.

    model: the name that was given. initialisations: names of golow's own, or ``own`` for what the
    model's constructor does. data_root: the folder of the data set's files, empty for the default.
    voc_label: which object of a VOC image gives its label. workers: commands of the user's own
    levels, by name. live: the model was a module object in a running program, not in a file.
    pretrained: the weights of a published model that was requested; None is the usual ones. ranks:
    processes that train together; ``batch`` and ``threads`` are those of one.
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
    pretrained: bool | None = None
    ranks: int = 1

    @property
    def steps(self) -> int:
        """Steps of an epoch, including a smaller last one."""
        return steps(self.dataset.train_samples, self.batch, self.ranks)

    @property
    def last_batch(self) -> int:
        """Samples of a rank in the smaller last step; 0 if there is none."""
        return last_batch(self.dataset.train_samples, self.batch, self.ranks)

    @property
    def trained_samples(self) -> int:
        """Samples of an epoch: all that can be divided among the ranks."""
        full = self.dataset.train_samples // (self.batch * self.ranks)
        return (full * self.batch + self.last_batch) * self.ranks


# ---------------------------------------------------------------- the results


class Epoch(Record, frozen=True, kw_only=True):
    """One epoch of one run. epoch: counts from 1.

    losses: of every batch, in order. train_seconds and eval_seconds: by the worker's clock.
    confusion: counts, row = true class, column = predicted class. checksum: of the pixels and
    labels that the level consumed, of several ranks that of each. learning_rate: of the last
    batch. wait_share: run-queue wait of the worker's threads over its training time; None if the
    system does not report it. device: figures of the GPU during training (``utilization`` as a
    share, ``energy`` J, ``power`` W, ``clock`` MHz). memory: of the training worker (``resident``
    B; on a GPU ``device_used`` B, or ``device_added`` B if the driver does not distinguish
    programs).
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
    checksum: Checksum = 0
    learning_rate: float = 0.0
    wait_share: float | None = None
    device: tuple[Quantity, ...] = ()
    memory: tuple[Quantity, ...] = ()


class Mistake(Record, frozen=True, kw_only=True):
    """A picture of the test set that was taken for another class.

    sample: its number in the test set. truth and predicted: classes. probability: of the predicted
    one. shape: (channels, height, width) of the picture as it is kept, with 1 or 3 channels.
    pixels: its bytes in this order, 0 to 255.
    """

    sample: int
    truth: int
    predicted: int
    probability: float
    shape: tuple[int, int, int]
    pixels: bytes


class Mistakes(Record, frozen=True, kw_only=True):
    """Errors of a level after its best epoch. count: of all. pictures: those that it was
    surest of."""

    epoch: int
    count: int
    pictures: tuple[Mistake, ...] = ()


class TrainingRun(Record, frozen=True, kw_only=True):
    """One level with one initialisation and one seed, successful or not.

    mistakes: after its best epoch; None for a text, and in records of before November 26, 2026.
    life: ``build``, ``load`` and ``ready`` s. failure: why it ended early; empty if it did not.
    log: the end of its worker's output, if it failed.
    """

    level: str
    initialisation: str
    seed: int
    workload: Workload
    check: Check
    epochs: tuple[Epoch, ...] = ()
    mistakes: Mistakes | None = None
    life: tuple[Quantity, ...] = ()
    notes: tuple[str, ...] = ()
    failure: str = ""
    log: str = ""


class CurveVerdict(Record, frozen=True, kw_only=True):
    """Verdict whether a level trained the same network as eager, over all seeds of an
    initialisation.

    figures: the differences from eager and the limits; differences have a 95% interval if there are
    enough seeds.
    """

    level: str
    initialisation: str
    word: CurveWord
    reason: str
    figures: tuple[Quantity, ...] = ()


class Training(Record, frozen=True, kw_only=True):
    """A whole training run: the plan, a run for each level, initialisation and seed, the verdicts.

    roundings: the baseline's first epochs, trained again from weights a few roundings away, one run
    per initialisation. They show how far rounding alone separates two curves; they are not a level.
    """

    plan: TrainingPlan
    runs: tuple[TrainingRun, ...]
    verdicts: tuple[CurveVerdict, ...] = ()
    notes: tuple[str, ...] = ()
    roundings: tuple[TrainingRun, ...] = ()

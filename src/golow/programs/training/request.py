"""The request for a training run. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from golow.programs.training.training_record import Augmentation, Schedule
from golow.records.workload import Device, Optimizer, Precision

if TYPE_CHECKING:
    from torch import nn

    from golow.data.voc import VocLabel


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """A training run as its user describes it; `golow.programs.training.plan` checks and plans it.

    model: a name of the zoo, ``file.py:Name``, ``package.module:name`` or a module. dataset: a name
    that `golow data list` shows, or ``folder:PATH``. levels: names; None means the default levels.
    workers: commands of the user's own levels, by name. seeds: each decides the initial weights and
    the order of the samples. batch: by default 128, or all samples if there are fewer. resolution:
    side of the images. sequence: tokens of a sample of a text. initialisations: names of golow,
    or ``own``; None means the model's default. threads: of every level; None means one per physical
    core, of ranks each its share. ranks: processes that train together, each on ``batch`` samples
    of every step. data_root: folder of the data set's files; None means golow's own folder.
    allow_differs: also train levels that fail the check. pretrained and download: as in
    `golow.workload.request.Request`.
    """

    model: str | nn.Module
    dataset: str
    levels: Sequence[str] | None = None
    workers: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    epochs: int = 10
    seeds: Sequence[int] = (0,)
    batch: int | None = None
    resolution: int | None = None
    sequence: int | None = None
    initialisations: Sequence[str] | None = None
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    augmentation: Augmentation = field(default_factory=Augmentation)
    device: Device = "cpu"
    precision: Precision = "default"
    threads: int | None = None
    ranks: int = 1
    data_root: str | Path | None = None
    voc_label: VocLabel = "first"
    allow_differs: bool = False
    pretrained: bool | None = None
    download: bool = False


class TrainingOptions(TypedDict, total=False):
    """Fields of `TrainingRequest` by name: those that `golow.train` hands on as they are."""

    levels: Sequence[str] | None
    epochs: int
    seeds: Sequence[int]
    batch: int | None
    resolution: int | None
    sequence: int | None
    initialisations: Sequence[str] | None
    device: Device
    precision: Precision
    threads: int | None
    ranks: int
    data_root: str | Path | None
    voc_label: VocLabel
    allow_differs: bool
    pretrained: bool | None
    download: bool

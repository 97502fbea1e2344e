"""A prepared data set in the form that a training run's requests to workers use."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from golow import models
from golow.data.catalog import Dataset, find
from golow.data.image_file import Images, Labels, PreparedImages
from golow.data.order import augmentation, epoch_order, write_order
from golow.data.prepare import Progress, prepare_dataset
from golow.data.token_file import open_prepared
from golow.data.voc import VocLabel
from golow.programs.training.training_record import Augmentation, DatasetFacts
from golow.records.errors import GolowError
from golow.worker.feed import normalised
from golow.workload.batch import Batch


class TrainingData(NamedTuple):
    """The prepared files, the facts about them, and the two numbers per channel that turn a pixel
    into an input, ``x * scale + shift``; a text has none."""

    train: Path
    test: Path
    facts: DatasetFacts
    test_labels: Labels
    scale: tuple[float, ...]
    shift: tuple[float, ...]

    def batches(self, count: int, batch: int, seed: int) -> tuple[Batch, ...]:
        """The first batches of the seed's first epoch, without augmentation. Samples repeat if the
        epoch has too few."""
        labels, stored, _ = open_prepared(self.train)
        rows = np.resize(epoch_order(len(labels), seed, 1), (count, batch))
        scale, shift = np.array(self.scale, np.float32), np.array(self.shift, np.float32)
        return tuple(
            Batch(
                (torch.from_numpy(normalised(stored[some], scale, shift)),),
                (torch.from_numpy(labels[some]),),
            )
            for some in rows
        )

    def test_images(self) -> Images | None:
        """The test set's images [N, channels, height, width], memory-mapped; None of a text."""
        test = open_prepared(self.test)
        return test.images if isinstance(test, PreparedImages) else None

    def write_order(self, file: Path, seed: int, epoch: int, changes: Augmentation) -> None:
        """Write the order of that epoch and each image's augmentation, for the workers."""
        samples = self.facts.train_samples
        shifts, flips = augmentation(samples, seed, epoch, changes.padding, changes.flip)
        write_order(file, epoch_order(samples, seed, epoch), shifts, flips)


def open_data(
    name: str,
    model: str,
    *,
    root: Path | None,
    resolution: int | None,
    sequence: int | None,
    voc_label: VocLabel,
    cache: Path,
    progress: Progress,
) -> TrainingData:
    """Prepare the data set for this model, unless that is done already.

    sequence: tokens of a sample of a text. resolution: side of the images. None means the data
    set's own; a model of the zoo gets its default if the data set has none or one that it cannot
    take. Raises `GolowError` as `prepare_dataset` does.
    """
    dataset = find(name, voc_label)
    _require_fit(dataset, model, sequence)
    files = prepare_dataset(
        name,
        root,
        resolution or _needed(dataset, model),
        cache,
        sequence=sequence,
        voc_label=voc_label,
        progress=progress,
    )
    train, test = map(open_prepared, files)
    mean, deviation = (np.array(x, np.float64) for x in (train.facts.mean, train.facts.deviation))
    facts = DatasetFacts(
        name=name,
        classes=train.facts.classes,
        shape=train[1].shape[1:],
        train_samples=len(train.labels),
        test_samples=len(test.labels),
        train_checksum=train.facts.checksum,
        test_checksum=test.facts.checksum,
        source=train.facts.source,
    )
    return TrainingData(
        train=files[0],
        test=files[1],
        facts=facts,
        test_labels=np.array(test.labels),
        scale=tuple((1 / (255 * deviation)).tolist()),
        shift=tuple((-mean / deviation).tolist()),
    )


def _require_fit(dataset: Dataset, model: str, sequence: int | None) -> None:
    """Raise `GolowError` if a model of the zoo takes something else than the data set has."""
    entry = models.ZOO.get(model)
    if entry is None:
        return
    if not dataset.sequence and not entry.takes_images:
        hint = "use --dataset text." if len(entry.fields) == 1 else "`golow models` lists others."
        raise GolowError(f"{model} takes no images, and {dataset.name} has images", hint)
    if dataset.sequence and (entry.takes_images or len(entry.fields) > 1):
        raise GolowError(
            f"{model} takes {', '.join(entry.inputs())}; {dataset.name} has one run of tokens "
            "per sample",
            "use gpt2_small, llama_tiny or lstm.",
        )
    if dataset.sequence:
        try:
            entry.require_sequence(dataset.sequence if sequence is None else sequence)
        except ValueError as error:
            raise GolowError(str(error), f"use --sequence {entry.sequence}.") from error


def _needed(dataset: Dataset, model: str) -> int | None:
    """The resolution to use if none is requested; None means the data set's own."""
    own, entry = dataset.size, models.ZOO.get(model)
    if (
        dataset.sequence
        or entry is None
        or (own is not None and not any(map(entry.resolution_fault, own)))
    ):
        return None
    return entry.resolution

"""The samples of a quantisation: some for the calibration, and others for the statements about the
result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from golow import models
from golow.data.token_file import open_prepared
from golow.observer import Observer
from golow.programs.training.data import TrainingData, open_data
from golow.records.errors import GolowError
from golow.storage.shell_words import shell_word
from golow.worker.feed import normalised
from golow.workload.batch import Batch
from golow.workload.hub.huggingface import PREFIX, has_tokenizer
from golow.workload.prepare import Prepared
from golow.workload.request import Request
from golow.workload.source import locate

INPUTS = "inputs"
"""Instead of a data set: the inputs of the workload itself."""
ROWS = 64  # samples of a forward pass


class Samples(NamedTuple):
    """calibration: inputs of forward passes. data: their source. test: samples of the statements, a
    data set or the other half of the workload's inputs; tested: their source."""

    calibration: tuple[Batch, ...]
    data: str
    tested: str
    test: TrainingData | tuple[Batch, ...]
    most: int | None = None

    @property
    def calibrating(self) -> int:
        """Number of calibration samples."""
        return sum(len(batch.inputs[0]) for batch in self.calibration)

    @property
    def is_text(self) -> bool:
        """True if a sample is a run of tokens."""
        return isinstance(self.test, TrainingData) and len(self.test.facts.shape) == 1

    def batches(self) -> Iterator[tuple[tuple[Tensor, ...], Tensor | None]]:
        """Yield the inputs of each test batch, with the correct classes if the data set has
        them."""
        if not isinstance(self.test, TrainingData):
            yield from ((batch.inputs, None) for batch in self.test)
            return
        labels, stored, _ = open_prepared(self.test.test)
        scale, shift = (np.array(x, np.float32) for x in (self.test.scale, self.test.shift))
        end = len(labels) if self.most is None else min(self.most, len(labels))
        for start in range(0, end, ROWS):
            rows = slice(start, min(start + ROWS, end))
            batch = normalised(stored[rows], scale, shift)
            inputs = torch.from_numpy(np.array(batch))
            yield (inputs,), torch.from_numpy(np.array(labels[rows]))


def of_data(
    request: Request,
    name: str,
    samples: int,
    most: int | None,
    root: Path | None,
    cache: Path,
    observer: Observer,
) -> tuple[Request, Samples]:
    """The samples of a data set, and the request with its inputs, classes and channels.

    samples: of the training set, for the calibration. most: of the test set, for the statements.
    Raises `GolowError` as `open_data` does.
    """
    data = open_data(
        name,
        request.model if isinstance(request.model, str) else "",
        root=root,
        resolution=request.resolution or _side(request.input_shape),
        sequence=request.sequence,
        voc_label="first",
        cache=cache,
        progress=lambda what, done, total: observer.stage(f"preparing {what}"),
    )
    facts = data.facts
    if len(facts.shape) == 1:
        _require_bytes(request, name)
    if request.input_shape not in (None, facts.shape):
        found, asked = ("x".join(map(str, one)) for one in (facts.shape, request.input_shape or ()))
        raise GolowError(
            f"the samples of {name} are {found}, and the model's input is {asked}",
            "name another data set with --calibrate, or --calibrate inputs.",
        )
    rows = min(ROWS, samples, facts.train_samples)
    batches = data.batches(-(-min(samples, facts.train_samples) // rows), rows, request.seed)
    zoo = isinstance(request.model, str) and request.model in models.ZOO
    images = len(facts.shape) == 3
    own = data.batches(4, request.batch or 8, request.seed + 1)
    fitting = replace(
        request,
        example_inputs=own[0].inputs,
        channels=facts.shape[0] if zoo and images else None,
        classes=len(facts.classes) if zoo else None,
        resolution=facts.shape[1] if zoo and images else None,
        sequence=None,
    )
    share = facts.test_samples if most is None else min(most, facts.test_samples)
    tested = f"{name}, {share:,} samples of the test set"
    return fitting, Samples(batches, f"{name}, training set", tested, data, most)


def _require_bytes(request: Request, name: str) -> None:
    """Raise `GolowError` for a model with a tokenizer, for which bytes are not tokens."""
    model = request.model
    if not isinstance(model, str) or not model.startswith(PREFIX):
        return
    source = locate(model, pretrained=request.pretrained, download=request.download)
    if has_tokenizer(source):
        raise GolowError(
            f"a token of {name} is a byte, and {model} has a tokenizer of its own",
            f"golow generate {shell_word(model)} --precision int4-weights --calibrate FILE.txt, or "
            "--calibrate inputs here, which draws tokens.",
        )


def _side(shape: tuple[int, ...] | None) -> int | None:
    """Side of a square image; None for inputs of another form."""
    return shape[1] if shape is not None and len(shape) == 3 and shape[1] == shape[2] else None


def of_inputs(prepared: Prepared) -> Samples:
    """The workload's own inputs: the first half for the calibration, the others for the
    statements. Raises `GolowError` if there is only one batch."""
    batches = prepared.batches
    half = len(batches) // 2
    if not half:
        raise GolowError(
            "one batch of inputs is too few: some are for the calibration, others for the test",
            "name a data set with --calibrate.",
        )
    what = prepared.workload.data
    return Samples(batches[:half], f"inputs: {what}", f"other inputs: {what}", batches[half:])

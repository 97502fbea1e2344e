"""The places in a workload's inputs that a race may mark, and the ranges of their values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor

from golow.worker.protocol import Marks
from golow.workload.bundle import Bundle

MOST_INDICES = 2**31
"""An input of whole numbers with a larger range is not marked: the hash has 32 bits."""


class Span(NamedTuple):
    """Where marks are in every sample of one input, and the range of their values.

    whole: the input holds whole numbers, such as indices, and so do the marks.
    """

    input: int
    start: int
    length: int
    low: float
    high: float
    whole: bool

    def marks(self, seed: int, chain: float | None, previous: float | None) -> Marks:
        """Marks with random values from the range of the input's own."""
        return Marks(**self._asdict(), seed=seed, chain=chain, previous=previous)


def choose_spans(bundle: Bundle) -> tuple[tuple[Span, ...], ...]:
    """The places of marks in the bundle's batches, those of each input that can be marked.

    An input of floats has one place, an eighth of every sample. Of whole numbers, a place begins at
    each column and has up to an eighth of all, with the range that they have in common: a number
    beyond what a column has seen may be no index at all. A column of fewer than three values, such
    as a mask's, is not marked.
    """
    places = []
    with safe_open(bundle.file("batches.safetensors"), framework="pt") as file:
        # Draws are not marked: a number between two draws, such as half of a mask's one, is none.
        for position in range(len(bundle.workload.inputs) - bundle.workload.draws):
            batches = range(bundle.workload.batches)
            values = torch.cat([file.get_tensor(f"{n}/input/{position}") for n in batches])
            if not values.is_complex() and values.numel():
                places.append(tuple(_places(position, values.view(len(values), -1))))
    return tuple(found for found in places if found)


def _places(position: int, samples: Tensor) -> Iterator[Span]:
    """samples: of all batches, [samples, elements]."""
    size = samples.shape[1]
    if samples.is_floating_point():
        low, high = float(samples.min()), float(samples.max())
        length = math.ceil(size / 8)
        if low < high:
            yield Span(position, (size - length) // 2, length, low, high, whole=False)
        return
    least, most = (found.tolist() for found in samples.long().aminmax(dim=0))
    for column in range(size):
        span = Span(position, column, 0, least[column], most[column], whole=True)
        for low, high in zip(least[column:], most[column:], strict=True):
            low, high = max(low, span.low), min(high, span.high)
            if span.length == math.ceil(size / 8) or not 1 < high - low < MOST_INDICES:
                break
            span = span._replace(length=span.length + 1, low=low, high=high)
        if span.length:
            yield span

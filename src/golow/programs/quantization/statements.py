"""Distance of a quantised network from the original, and its accuracy, counted batch by batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.stats import beta
from torch import Tensor

from golow.programs.quantization.outputs import Outputs
from golow.programs.quantization.quantization_record import (
    Movement,
    OutputDistance,
    Share,
    TaskAccuracy,
)
from golow.programs.quantization.samples import Samples

CONFIDENCE = 0.95


def share(count: int, cases: int, confidence: float = CONFIDENCE) -> Share:
    """The share with its exact interval."""
    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, count, cases - count + 1)) if count else 0.0
    high = float(beta.isf(tail, count + 1, cases - count)) if count < cases else 1.0
    return Share(count=count, cases=cases, low=low, high=high)


def stated(
    original: Outputs, moved: Outputs, samples: Samples, gate: float
) -> tuple[Movement, TaskAccuracy | None]:
    """Return the distance of the networks, and the accuracy of both; None for samples without
    classes, or if the first output is not scores of the classes."""
    distance, accuracy = MovementMeter(), AccuracyMeter()
    for inputs, labels in samples.batches():
        one, other = original(inputs), moved(inputs)
        distance.add(one, other)
        if labels is not None and is_scores(one[0]) and one[0].shape[:-1] == labels.shape:
            accuracy.add(labels, one[0], other[0])
    return (
        distance.movement(samples.tested),
        accuracy.accuracy(samples.tested, gate, is_text=samples.is_text),
    )


class MovementMeter:
    """The distance between the outputs of two networks."""

    def __init__(self) -> None:
        self.samples = 0
        self._outputs: list[_Distance] = []

    def add(self, original: Sequence[Tensor], moved: Sequence[Tensor]) -> None:
        """Add the outputs of both for a batch."""
        self._outputs = self._outputs or [_Distance() for _ in original]
        self.samples += len(original[0]) if original else 0
        for distance, one, other in zip(self._outputs, original, moved, strict=True):
            distance.add(one, other)

    def movement(self, data: str) -> Movement:
        """Return the distance over all batches so far."""
        return Movement(
            data=data,
            samples=self.samples,
            outputs=tuple(distance.found() for distance in self._outputs),
        )


class _Distance:
    """The distance of one output, so far."""

    def __init__(self) -> None:
        self._error = self._size = self._divergence = 0.0
        self._flipped = self._cases = 0

    def add(self, original: Tensor, moved: Tensor) -> None:
        one, other = original.double(), moved.double()
        self._error += float((one - other).square().sum())
        self._size += float(one.square().sum())
        if is_scores(original):
            self._cases += one[..., 0].numel()
            self._flipped += int((one.argmax(-1) != other.argmax(-1)).sum())
            before, after = one.log_softmax(-1), other.log_softmax(-1)
            self._divergence += float((before.exp() * (before - after)).nansum())

    def found(self) -> OutputDistance:
        ratio = self._error / self._size if self._size else (math.inf if self._error else 0.0)
        if not self._cases:
            return OutputDistance(error=math.sqrt(ratio))
        return OutputDistance(
            error=math.sqrt(ratio),
            divergence=self._divergence / self._cases,
            flipped=share(self._flipped, self._cases),
        )


def is_scores(output: Tensor) -> bool:
    """True for scores of classes along the last axis: [N, classes] or [N, tokens, classes]."""
    return output.is_floating_point() and output.dim() in (2, 3) and output.shape[-1] > 1


class AccuracyMeter:
    """Number of correct answers of two networks."""

    def __init__(self) -> None:
        self._cases = self._both = self._lost = self._gained = 0
        self._losses = [0.0, 0.0]

    def add(self, labels: Tensor, original: Tensor, moved: Tensor) -> None:
        """Add the scores of both, [..., classes], and the correct classes [...]."""
        before, after = original.argmax(-1) == labels, moved.argmax(-1) == labels
        self._cases += labels.numel()
        self._both += int((before & after).sum())
        self._lost += int((before & ~after).sum())
        self._gained += int((~before & after).sum())
        for place, scores in enumerate((original, moved)):
            right = scores.double().log_softmax(-1).gather(-1, labels[..., None])
            self._losses[place] -= float(right.sum())

    def accuracy(self, data: str, gate: float, *, is_text: bool) -> TaskAccuracy | None:
        """Return the accuracy over all batches so far; None without a case."""
        if not self._cases:
            return None
        low, high = gate_interval(self._both, self._lost, self._gained, self._cases, gate)
        first, second = (math.exp(loss / self._cases) for loss in self._losses)
        return TaskAccuracy(
            data=data,
            original=share(self._both + self._lost, self._cases),
            quantized=share(self._both + self._gained, self._cases),
            lost=self._lost,
            gained=self._gained,
            gate=gate,
            low=low,
            high=high,
            perplexity=(first, second) if is_text else None,
        )


def gate_interval(
    both: int, lost: int, gained: int, cases: int, gate: float
) -> tuple[float, float]:
    """A 95% interval of (accuracy after) - gate (accuracy before), for the same cases.

    It is (1 - gate) of the cases that both get right, and those gained, less gate of those lost.
    Each share has its exact interval, together with 95% (Bonferroni): never too narrow, even if
    nothing was lost in a few cases, for which a bootstrap would find no width at all.
    """
    together = 1 - (1 - CONFIDENCE) / 3
    right, less, more = (share(count, cases, together) for count in (both, lost, gained))
    low = (1 - gate) * right.low + more.low - gate * less.high
    high = (1 - gate) * right.high + more.high - gate * less.low
    return low, high

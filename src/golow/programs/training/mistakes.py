"""The test images that a level misclassified, those that it was surest of first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

from golow.programs.training.training_record import Mistake, Mistakes

MOST = 12
"""Images that are kept: enough to see what kind they are."""
LONGEST_SIDE = 48
"""Pixels of a kept image's longer side; what is larger is made smaller by a whole number."""


def find_mistakes(
    outputs: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
    images: npt.NDArray[np.uint8],
    epoch: int,
) -> Mistakes:
    """outputs: [rows, scores]. labels: [rows]. images: [rows, channels, height, width], 0 to 255.

    A level is as sure as the softmax of its scores. Of those equally sure the first come first;
    scores that are not finite only count.
    """
    predicted = outputs.argmax(1)
    wrong = np.flatnonzero(predicted != labels)
    with np.errstate(invalid="ignore"):
        sure = log_softmax(outputs[wrong].astype(np.float64), axis=1).max(1)
    order = np.argsort(-sure, kind="stable")
    order = order[np.isfinite(sure[order])][:MOST]
    return Mistakes(
        epoch=epoch,
        count=len(wrong),
        pictures=tuple(
            _mistake(int(sample), int(labels[sample]), int(predicted[sample]), images[sample], high)
            for sample, high in zip(wrong[order], np.exp(sure[order]).tolist(), strict=True)
        ),
    )


def _mistake(
    sample: int, truth: int, predicted: int, image: npt.NDArray[np.uint8], probability: float
) -> Mistake:
    small = _smaller(image[:3] if len(image) >= 3 else image[:1])
    return Mistake(
        sample=sample,
        truth=truth,
        predicted=predicted,
        probability=probability,
        shape=small.shape,
        pixels=small.tobytes(),
    )


def _smaller(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Means of squares of pixels; what is left over at the right and below is cut off."""
    channels, height, width = image.shape
    step = -(-max(height, width) // LONGEST_SIDE)
    high, wide = max(height // step, 1), max(width // step, 1)
    squares = image[:, : high * step, : wide * step].reshape(
        channels, high, min(step, height), wide, min(step, width)
    )
    means: npt.NDArray[np.float64] = squares.mean((2, 4))
    return np.rint(means).astype(np.uint8)

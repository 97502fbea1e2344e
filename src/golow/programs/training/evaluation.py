"""Outputs and labels -> loss, accuracy and confusion matrix, computed alike for all levels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax


class Evaluation(NamedTuple):
    """loss: mean cross entropy. confusion: counts, row = true class, column = predicted class."""

    loss: float
    accuracy: float
    confusion: tuple[tuple[int, ...], ...]


def evaluate(
    outputs: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], classes: int
) -> Evaluation:
    """outputs: [rows, scores], at least one score per class. labels: [rows], 0 to classes - 1. Of a
    text, [rows, sequence, scores] and [rows, sequence]: every token counts as a row.

    Everything is computed in float64. Among equal scores the first one counts. Raises ValueError
    if the outputs have another shape.
    """
    if outputs.shape[:-1] != labels.shape or outputs.shape[-1] < classes:
        samples = "images" if labels.ndim == 1 else f"sequences of {labels.shape[1]} tokens"
        raise ValueError(
            f"the model's output has the shape {list(outputs.shape)} for {len(labels)} {samples} "
            f"of {classes} classes; it needs one score per class and {samples.split()[-1][:-1]}"
        )
    outputs, labels = outputs.reshape(-1, outputs.shape[-1]), labels.ravel()
    rows = len(labels)
    scores = log_softmax(outputs.astype(np.float64), axis=1)
    predicted = outputs.argmax(1)  # from the outputs: log_softmax may round close values to equal
    confusion = np.zeros((classes, outputs.shape[1]), np.int64)
    np.add.at(confusion, (labels, predicted), 1)
    return Evaluation(
        loss=float(-scores[np.arange(rows), labels].mean()),
        accuracy=float((predicted == labels).mean()),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
    )

"""A part of a data set read, or refused."""

from __future__ import annotations

import numpy as np
import pytest

from golow.data.part import Part
from golow.records.errors import GolowError


def read(part: Part, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Labels [N] and all images [N, C, *size]."""
    labels, batches = part.labels(), list(part.images(size))
    assert labels.dtype == np.int64
    assert all(batch.dtype == np.uint8 for batch in batches)
    images = np.concatenate(batches)
    assert len(labels) == len(images)
    return labels, images


def refused(part: Part, size: tuple[int, int], *words: str) -> None:
    with pytest.raises(GolowError) as caught:
        read(part, size)
    for word in words:
        assert word in caught.value.message
    assert caught.value.hint

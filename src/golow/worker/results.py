"""One number for all outputs of an iteration, to which a worker commits while it is timed.

The number is the sum of all elements, each times a weight that looks random, so that an error in
any element changes it. An error pattern with a root mean square of L in N elements changes it by
about L sqrt(N / 3), wherever the errors are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt


@lru_cache(maxsize=8)
def weights(start: int, count: int) -> npt.NDArray[np.float32]:
    """The weights of elements ``start`` to ``start + count``, each from -1 to 1.

    Elements are numbered over all outputs in their order. The hash is the finalizer of MurmurHash3
    (Austin Appleby, public domain), which every language with 32-bit integers can compute.
    """
    with np.errstate(over="ignore"):
        hashed = np.arange(start, start + count, dtype=np.uint32)
        hashed *= np.uint32(0x9E3779B1)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            hashed ^= hashed >> np.uint32(shift)
            hashed *= np.uint32(factor)
        hashed ^= hashed >> np.uint32(16)
    return (hashed / 2.0**31 - 1.0).astype(np.float32)


def weighted_sum(outputs: Sequence[npt.NDArray[np.generic]]) -> float:
    """The number for these outputs, in their order."""
    total, start = 0.0, 0
    for output in outputs:
        flat = output.ravel().astype(np.float32, copy=False)
        total += float(np.dot(flat, weights(start, flat.size)))
        start += flat.size
    return total

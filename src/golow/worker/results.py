"""One number for all outputs of an iteration, to which a worker commits while it is timed.

The number is the sum of all elements, each times a weight that looks random, so that an error in
any element changes it. An error pattern with a root mean square of L in N elements changes it by
about L sqrt(N / 3), wherever the errors are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from golow.worker.hashing import BLOCK, hashed_range


def weights(start: int, count: int) -> npt.NDArray[np.float32]:
    """The weights of elements ``start`` to ``start + count``, each from -1 to 1.

    Elements are numbered over all outputs in their order.
    """
    # Half of the range less, as a signed number: nothing is rounded before the conversion.
    signed = (hashed_range(start, count) ^ np.uint32(1 << 31)).view(np.int32)
    return signed.astype(np.float32) * np.float32(2.0**-31)


def weighted_sum(outputs: Sequence[npt.NDArray[np.generic]]) -> float:
    """The number for these outputs, in their order."""
    total, start = 0.0, 0
    for output in outputs:
        flat = output.ravel()
        for first in range(0, flat.size, BLOCK):
            part = flat[first : first + BLOCK].astype(np.float32, copy=False)
            total += float(np.dot(part, _remembered(start + first, part.size)))
        start += flat.size
    return total


# An iteration of a text model on many cores takes less time than all weights take to be computed.
_remembered = cache(weights)

"""The hash of the protocol: weights of results and values of marks come from it.

It is the finalizer of MurmurHash3 (Austin Appleby, public domain), which every language with 32-bit
integers can compute.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FIRST, SECOND, THIRD, BITS = 0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35, 0xFFFFFFFF
BLOCK = 1 << 15  # numbers that are hashed together, in the processor's cache


def hashed(number: int) -> int:
    """The hash of one number, of which the lower 32 bits count."""
    found = number * FIRST & BITS
    found = (found ^ found >> 16) * SECOND & BITS
    found = (found ^ found >> 13) * THIRD & BITS
    return found ^ found >> 16


def hashed_range(start: int, count: int) -> npt.NDArray[np.uint32]:
    """The hashes of ``start`` to ``start + count``."""
    found = np.arange(count, dtype=np.uint32)
    for first in range(0, count, BLOCK):
        part = found[first : first + BLOCK]
        part += np.uint32(start & BITS)
        part *= np.uint32(FIRST)
        for shift, factor in ((16, SECOND), (13, THIRD)):
            part ^= part >> np.uint32(shift)
            part *= np.uint32(factor)
        part ^= part >> np.uint32(16)
    return found

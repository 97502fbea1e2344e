"""Dropout whose masks are those that NumPy's generator gives, at any number of threads, and its
gradient."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from golow.levels.direct.onednn.kernels import Kernel, parts

PIECE = 1024  # of dropout.cpp
WORD = np.uint64
GENERATOR = np.dtype(
    [("state", WORD, 2), ("increment", WORD, 2), ("drawn", WORD), ("active", WORD)]
)
"""Generator of dropout.cpp."""

FORWARD = Path(__file__).with_suffix(".cpp").read_text(encoding="utf-8")
ADVANCE = """static void body(void* const* pointers, const long* n, long begin, long end) {
  unsigned long* const generator = static_cast<unsigned long*>(pointers[0]);
  if (generator[5]) generator[4] += n[2];
}"""
BACKWARD = """static void body(void* const* pointers, const long* n, long begin, long end) {
  const float* const outer = static_cast<float*>(pointers[0]);
  const unsigned char* const mask = static_cast<unsigned char*>(pointers[1]);
  float* const inner = static_cast<float*>(pointers[2]);
  const bool active = static_cast<unsigned long*>(pointers[3])[5];
  const float factor = active ? __int_as_float(static_cast<int>(n[3])) : 1.0f;
  const long first = begin * n[2], last = end * n[2] < n[4] ? end * n[2] : n[4];
  #pragma omp simd
  for (long k = first; k < last; k++) inner[k] = outer[k] * (factor * mask[k]);
}"""


def generator(seed: int) -> np.ndarray:
    """Return the generator of this seed, which is active and has drawn nothing."""
    start = np.random.PCG64(seed).state["state"]
    halves = ([start[name] >> 64, start[name] & (2**64 - 1)] for name in ("state", "inc"))
    return np.array((*halves, 0, 1), GENERATOR)


def dropout(count: int, probability: float) -> Kernel:
    """Pointers: x -> y, the mask (bool) [count]; generator. y may be x. Elements are kept where
    ``Generator(PCG64(seed)).random(count, float32)`` is not below the probability."""
    chance = np.float32(probability)
    threshold = math.ceil(float(chance) * 2**24)  # floats are drawn in steps of 2^-24
    factor = float(1 / (1 - chance)) if chance < 1 else 0.0
    return Kernel(FORWARD, (*_pieces(count), count, threshold, _bits(factor)))


def advance(count: int) -> Kernel:
    """Pointers: generator, which has then drawn as many more, if it is active."""
    return Kernel(ADVANCE, (*parts(1, 1), count))


def dropout_backward(count: int, scale: float) -> Kernel:
    """Pointers: gradient, mask -> gradient [count], which may be the first; generator."""
    return Kernel(BACKWARD, (*_pieces(count), PIECE, _bits(scale), count))


def _pieces(count: int) -> tuple[int, int]:
    return parts(-(-count // PIECE), count)


def _bits(value: float) -> int:
    """The bits of a float32 as a number."""
    found: int
    [found] = struct.unpack("i", struct.pack("f", value))
    return found

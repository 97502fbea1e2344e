"""The gradient of an image or a volume that was resampled."""

from __future__ import annotations

import math
from collections.abc import Sequence

from golow.levels.direct.onednn.kernels import Kernel, parts

# A part is a line of the result: it adds up the lines of the gradient that were computed from it.
CODE = """static void body(void* const* pointers, const long* n, long begin, long end) {
  const long depth = n[2], height = n[3], width = n[4], inner = n[8];
  const long lower = n[5], tall = n[6], wide = n[7];
  const bool linear = n[9];
  // The position that an index of the larger side was computed from.
  const auto source = [linear](long at, long small, long large) {
    if (!linear) return static_cast<float>(at / (large / small));
    const float found = (at + 0.5f) * (static_cast<float>(small) / large) - 0.5f;
    return found < 0 ? 0 : found;
  };
  const auto share = [source](long place, long at, long small, long large) {
    const float found = source(at, small, large);
    const long first = static_cast<long>(found), second = first + (first < small - 1);
    const float rest = found - first;
    return (first == place ? 1 - rest : 0) + (second == place ? rest : 0);
  };
  const auto from = [](long place, long small, long large) {
    const long first = (place - 1) * large / small - 1;
    return first < 0 ? 0 : first;
  };
  const auto to = [](long place, long small, long large) {
    const long last = (place + 2) * large / small + 1;
    return last < large ? last : large;
  };
  for (long part = begin; part < end; part++) {
    const long outer = part / (depth * height), d = part / height % depth, h = part % height;
    float* const y = static_cast<float*>(pointers[1]) + part * width * inner;
    for (long k = 0; k < width * inner; k++) y[k] = 0;
    for (long i = from(d, depth, lower); i < to(d, depth, lower); i++) {
      const float of_layer = share(d, i, depth, lower);
      if (of_layer == 0) continue;
      for (long j = from(h, height, tall); j < to(h, height, tall); j++) {
        const float of_line = of_layer * share(h, j, height, tall);
        if (of_line == 0) continue;
        const float* x = static_cast<float*>(pointers[0]);
        x += ((outer * lower + i) * tall + j) * wide * inner;
        for (long at = 0; at < wide; at++, x += inner) {
          const float found = source(at, width, wide);
          const long first = static_cast<long>(found), second = first + (first < width - 1);
          const float rest = (found - first) * of_line, whole = of_line - rest;
          #pragma omp simd
          for (long k = 0; k < inner; k++) y[first * inner + k] += whole * x[k];
          if (rest == 0) continue;
          #pragma omp simd
          for (long k = 0; k < inner; k++) y[second * inner + k] += rest * x[k];
        }
      }
    }
  }
}"""


def resampling_backward(
    outer: int, size: Sequence[int], larger: Sequence[int], inner: int, linear: bool
) -> Kernel:
    """Pointers: the gradient [outer, *larger, inner] -> that of x [outer, *size, inner]. size,
    larger: of two or three axes. linear: between the centres of elements; otherwise each element
    was repeated, and sizes are multiples."""
    small, large = ((1,) * (3 - len(sizes)) + tuple(sizes) for sizes in (size, larger))
    lines = outer * small[0] * small[1]
    numbers = parts(lines, outer * math.prod(large) * inner)
    return Kernel(CODE, (*numbers, *small, *large, inner, int(linear)))

"""Sums over axes that are not the last ones: gradients of biases, of the vectors of norms, and of
what was repeated. oneDNN has only its reference code for them."""

from __future__ import annotations

from golow.levels.vendor.onednn.kernels import Kernel, parts

BLOCK = 64  # columns that are added side by side: four cache lines of each row

CODE = f"""static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long rows = n[2], columns = n[3], divisor = n[4], blocks = n[5];
  for (long part = begin; part < end; part++) {{
    const long outer = part / blocks, first = part % blocks * {BLOCK}, left = columns - first;
    const long width = left < {BLOCK} ? left : {BLOCK};
    const float* const x = static_cast<float*>(pointers[0]) + outer * rows * columns + first;
    float* const y = static_cast<float*>(pointers[1]) + outer * columns + first;
    double sums[{BLOCK}] = {{}};
    for (long row = 0; row < rows; row++) {{
      const float* const values = x + row * columns;
      #pragma omp simd
      for (long k = 0; k < width; k++) sums[k] += values[k];
    }}
    for (long k = 0; k < width; k++) y[k] = static_cast<float>(sums[k] / divisor);
  }}
}}"""


def column_sums(outer: int, rows: int, columns: int, mean: bool) -> Kernel:
    """Pointers: x [outer, rows, columns] -> sums or means over its rows [outer, columns], both
    float32; they are added in float64."""
    blocks = -(-columns // BLOCK)
    shared = parts(outer * blocks, outer * rows * columns)
    return Kernel(CODE, (*shared, rows, columns, rows if mean else 1, blocks))

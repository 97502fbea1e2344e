"""Reductions over axes that are not the last ones in memory: gradients of biases, of the vectors of
norms, and of what was repeated; features over all pixels. oneDNN has only its reference code for
them."""

from __future__ import annotations

from golow.levels.direct.onednn.kernels import Kernel, parts

BLOCK = 64  # columns that are reduced side by side: four cache lines of each row

CODE = """static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long rows = n[2], columns = n[3], divisor = n[4], blocks = n[5];
  for (long part = begin; part < end; part++) {{
    const long outer = part / blocks, first = part % blocks * {block}, left = columns - first;
    const long width = left < {block} ? left : {block};
    const float* const x = static_cast<float*>(pointers[0]) + outer * rows * columns + first;
    float* const y = static_cast<float*>(pointers[1]) + outer * columns + first;
{body}
  }}
}}"""
SUMS = """    double sums[{block}] = {{}};
    for (long row = 0; row < rows; row++) {{
      const float* const values = x + row * columns;
      #pragma omp simd
      for (long k = 0; k < width; k++) sums[k] += values[k];
    }}
    for (long k = 0; k < width; k++) y[k] = static_cast<float>(sums[k] / divisor);"""
# NaN is kept apart, since a comparison with it is never true.
EXTREMES = """    float most[{block}], unordered[{block}] = {{}};
    for (long k = 0; k < width; k++) most[k] = x[k];
    for (long row = 0; row < rows; row++) {{
      const float* const values = x + row * columns;
      #pragma omp simd
      for (long k = 0; k < width; k++) {{
        most[k] = values[k] {sign} most[k] ? values[k] : most[k];
        unordered[k] = values[k] != values[k] ? values[k] : unordered[k];
      }}
    }}
    for (long k = 0; k < width; k++) y[k] = unordered[k] == 0 ? most[k] : unordered[k];"""
SIGNS = {"maximum": ">", "minimum": "<"}
REDUCED = ("sum", "mean", *SIGNS)


def reduction(function: str, outer: int, rows: int, columns: int) -> Kernel:
    """Pointers: x [outer, rows, columns] -> one number for each column [outer, columns], both
    float32. function: sum or mean, in float64, maximum or minimum, which is NaN where a column has
    one. Raises KeyError for another one."""
    if function in ("sum", "mean"):
        body = SUMS.format(block=BLOCK)
    else:
        body = EXTREMES.format(block=BLOCK, sign=SIGNS[function])
    blocks = -(-columns // BLOCK)
    shared = parts(outer * blocks, outer * rows * columns)
    divisor = rows if function == "mean" else 1
    code = CODE.format(block=BLOCK, body=body)
    return Kernel(code, (*shared, rows, columns, divisor, blocks))

"""Softmax over an axis that is not the last one, its logarithm and their gradients: classes of an
image's pixels, for example. Some columns are computed side by side; sums are in float64."""

from __future__ import annotations

from golow.levels.direct.onednn.kernels import Kernel, parts
from golow.levels.direct.onednn.kernels.columns import BLOCK

EACH = "#pragma omp simd\n      for (long k = 0; k < width; k++)"
LARGEST = """    float most[BLOCK];
    double sums[BLOCK] = {};
    for (long k = 0; k < width; k++) most[k] = -__builtin_inff();
    for (long row = 0; row < rows; row++) {
      const float* const x = x_all + row * columns;
      EACH most[k] = x[k] > most[k] ? x[k] : most[k];
    }
"""
SOFTMAX = """    for (long row = 0; row < rows; row++) {
      const float* const x = x_all + row * columns;
      float* const y = y_all + row * columns;
      EACH {
        const float term = exp_of_term(x[k] - most[k]);
        y[k] = term;
        sums[k] += term;
      }
    }
    for (long row = 0; row < rows; row++) {
      float* const y = y_all + row * columns;
      EACH y[k] /= static_cast<float>(sums[k]);
    }
"""
LOG_SOFTMAX = """    for (long row = 0; row < rows; row++) {
      const float* const x = x_all + row * columns;
      EACH sums[k] += exp_of_term(x[k] - most[k]);
    }
    for (long k = 0; k < width; k++) sums[k] = __builtin_log(sums[k]);
    for (long row = 0; row < rows; row++) {
      const float* const x = x_all + row * columns;
      float* const y = y_all + row * columns;
      EACH y[k] = static_cast<float>((x[k] - most[k]) - sums[k]);
    }
"""
BACKWARD = """    double sums[BLOCK] = {};
    for (long row = 0; row < rows; row++) {
      const float* const x = x_all + row * columns;
      const float* const result = result_all + row * columns;
      EACH sums[k] += TERM;
    }
    for (long row = 0; row < rows; row++) {
      const float* const x = x_all + row * columns;
      const float* const result = result_all + row * columns;
      float* const y = y_all + row * columns;
      EACH {
        const float total = static_cast<float>(sums[k]);
        y[k] = GRADIENT;
      }
    }
"""


def softmax(outer: int, rows: int, columns: int, log: bool) -> Kernel:
    """Pointers: x [outer, rows, columns] -> y, which may be x. The sum is over rows."""
    body = LARGEST + (LOG_SOFTMAX if log else SOFTMAX)
    return _of_columns(body, ("x", "y"), outer, rows, columns)


def softmax_backward(outer: int, rows: int, columns: int, log: bool) -> Kernel:
    """Pointers: the gradient of the result, the result -> the gradient of x."""
    term = "x[k]" if log else "x[k] * result[k]"
    gradient = "x[k] - exp_of_term(result[k]) * total" if log else "(x[k] - total) * result[k]"
    body = BACKWARD.replace("TERM", term).replace("GRADIENT", gradient)
    return _of_columns(body, ("x", "result", "y"), outer, rows, columns)


def _of_columns(body: str, names: tuple[str, ...], outer: int, rows: int, columns: int) -> Kernel:
    blocks = -(-columns // BLOCK)
    lines = [
        "static void body(void* const* pointers, const long* n, long begin, long end) {",
        "  const long rows = n[2], columns = n[3], blocks = n[4];",
        "  for (long part = begin; part < end; part++) {",
        "    const long first = part % blocks * BLOCK, left = columns - first;",
        "    const long width = left < BLOCK ? left : BLOCK;",
        "    const long start = part / blocks * rows * columns + first;",
        *(
            f"    float* const {name}_all = static_cast<float*>(pointers[{index}]) + start;"
            for index, name in enumerate(names)
        ),
        f"{body}  }}",
        "}",
    ]
    code = "\n".join(lines).replace("EACH", EACH).replace("BLOCK", str(BLOCK))
    numbers = parts(outer * blocks, outer * rows * columns)
    return Kernel(code, (*numbers, rows, columns, blocks))

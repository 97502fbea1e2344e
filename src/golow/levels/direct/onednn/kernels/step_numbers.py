"""The few numbers that an optimizer's step has for all parameters: what clipping multiplies by, and
Adam's rates."""

from __future__ import annotations

from collections.abc import Sequence

from golow.levels.direct.onednn.kernels import Kernel, parts

PIECE = 16_384  # elements whose squares are one sum

SQUARES = """\
static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long rows = n[2];
  float* const sums = static_cast<float*>(pointers[rows]);
  for (long part = begin; part < end; part++) {{
    long row = 0, first = part;
    while (first >= (n[3 + row] + {piece} - 1) / {piece})
      first -= (n[3 + row++] + {piece} - 1) / {piece};
    const long start = first * {piece}, left = n[3 + row] - start;
    const long count = left < {piece} ? left : {piece};
    const float* const x = static_cast<float*>(pointers[row]) + start;
    double sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (long k = 0; k < count; k++) sum += static_cast<double>(x[k]) * x[k];
    sums[part] = static_cast<float>(sum);
  }}
}}"""
FACTOR = """\
static void body(void* const* pointers, const long* n, long begin, long end) {{
  const float* const sums = static_cast<float*>(pointers[0]);
  double sum = 0;
  for (long k = 0; k < n[2]; k++) sum += sums[k];
  const double factor = {norm} / (__builtin_sqrt(sum) + {smallest});
  static_cast<float*>(pointers[1])[0] = static_cast<float>(factor > 1 ? 1 : factor);
}}"""
ADAM = """\
static void body(void* const* pointers, const long* n, long begin, long end) {{
  const float steps = static_cast<float*>(pointers[0])[0] + 1;
  const float rate = static_cast<float*>(pointers[1])[0];
  const double first = 1 - __builtin_pow({first}, steps);
  const double second = 1 - __builtin_pow({second}, steps);
  static_cast<float*>(pointers[2])[0] = steps;
  static_cast<float*>(pointers[3])[0] = static_cast<float>(rate / first);
  static_cast<float*>(pointers[4])[0] = static_cast<float>(1 / __builtin_sqrt(second));
}}"""


def squares(sizes: Sequence[int]) -> Kernel:
    """Pointers: rows of these sizes -> the sums of squares of their pieces [`pieces` of them]."""
    numbers = parts(pieces(sizes), sum(sizes))
    return Kernel(SQUARES.format(piece=PIECE), (*numbers, len(sizes), *sizes))


def pieces(sizes: Sequence[int]) -> int:
    """The number of those sums."""
    return sum(-(-size // PIECE) for size in sizes)


def clip_factor(count: int, norm: float, smallest: float) -> Kernel:
    """Pointers: sums of squares [count] -> norm / (their norm + smallest), at most 1."""
    code = FACTOR.format(norm=repr(float(norm)), smallest=repr(smallest))
    return Kernel(code, (*parts(1, count), count))


def adam_numbers(betas: tuple[float, float]) -> Kernel:
    """Pointers: number of steps, learning rate -> the number of this step, the rate over 1 - beta
    to that power, and 1 / sqrt of the same of the other beta."""
    first, second = (repr(float(beta)) for beta in betas)
    return Kernel(ADAM.format(first=first, second=second), parts(1, 1))

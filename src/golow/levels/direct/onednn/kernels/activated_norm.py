"""Batch norm in training with an activation, and its gradients: the parts that are no functions of
elements. Images are [outer, rows, columns] in memory, and a vector of the channels repeats along
outer and columns. Sums are in float64.

With n = (x - mean) * deviation and g, the gradient of the activation's argument n * scale + shift,
the gradient of x is scale * deviation * (g - S1 / M - n * S2 / M), where S1 is the sum of g and S2
that of g * n over the M pixels of a channel.
"""

from __future__ import annotations

from golow.levels.direct.onednn.kernels import Kernel, parts
from golow.levels.direct.onednn.kernels.moments import LINE

NORMED = "(x - mean) * deviation"

STATISTICS = """\
static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long channels = n[2], all = n[3];
  float* const* const p = reinterpret_cast<float* const*>(pointers);
  const double images = all / channels;
  for (long c = begin; c < end; c++) {{
    double mean = 0, variance = 0;
    for (long i = c; i < all; i += channels) mean += p[0][i];
    mean /= images;
    for (long i = c; i < all; i += channels) {{
      const double distance = p[0][i] - mean;
      variance += p[0][all + i] + distance * distance;
    }}
    variance /= images;
    p[1][c] = static_cast<float>(mean);
    p[2][c] = static_cast<float>(variance);
    p[3][c] = static_cast<float>(1 / __builtin_sqrt(variance + {epsilon}));
  }}
}}"""

SUMS_OF_COLUMNS = """\
static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long rows = n[2], columns = n[3], channels = n[4], blocks = n[5];
  float* const* const p = reinterpret_cast<float* const*>(pointers);
  for (long part = begin; part < end; part++) {{
    const long outer = part / blocks, first = part % blocks * {line}, left = columns - first;
    const long width = left < {line} ? left : {line};
    const long made = outer * columns + first, channel = made % channels;
    double plain[{line}] = {{}}, projected[{line}] = {{}};
    for (long row = 0; row < rows; row++) {{
      const long place = (outer * rows + row) * columns + first;
      #pragma omp simd
      for (long k = 0; k < width; k++) {{
        const float outer_gradient = p[0][place + k], x = p[1][place + k];
        const float mean = p[2][channel + k], deviation = p[3][channel + k];
{inner}
        plain[k] += inner;
        projected[k] += inner * normed;
      }}
    }}
    for (long k = 0; k < width; k++) {{
      p[{last}][made + k] = static_cast<float>(plain[k]);
      p[{last} + 1][made + k] = static_cast<float>(projected[k]);
    }}
  }}
}}"""
SUMS_OF_ROWS = """\
static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long rows = n[2], channels = n[3], k = 0;
  float* const* const p = reinterpret_cast<float* const*>(pointers);
  for (long outer = begin; outer < end; outer++) {{
    const long channel = outer % channels;
    const float mean = p[2][channel], deviation = p[3][channel];
    double plain = 0, projected = 0;
    #pragma omp simd reduction(+ : plain, projected)
    for (long row = 0; row < rows; row++) {{
      const float outer_gradient = p[0][outer * rows + row], x = p[1][outer * rows + row];
{inner}
      plain += inner;
      projected += inner * normed;
    }}
    p[{last}][outer] = static_cast<float>(plain);
    p[{last} + 1][outer] = static_cast<float>(projected);
  }}
}}"""
JOINED_SUMS = """\
static void body(void* const* pointers, const long* n, long begin, long end) {
  const long channels = n[2], all = n[3], pixels = n[4];
  float* const* const p = reinterpret_cast<float* const*>(pointers);
  for (long c = begin; c < end; c++) {
    double plain = 0, projected = 0;
    for (long i = c; i < all; i += channels) {
      plain += p[0][i];
      projected += p[1][i];
    }
    p[2][c] = static_cast<float>(projected);
    p[3][c] = static_cast<float>(plain);
    p[4][c] = static_cast<float>(projected / pixels);
    p[5][c] = static_cast<float>(plain / pixels);
  }
}"""


def argument(normed: str, scale: str, shift: str) -> str:
    """Return the argument of the activation as C; scale and shift are names, or empty."""
    scaled = f"{normed} * {scale}" if scale else normed
    return f"{scaled} + {shift}" if shift else scaled


def statistics(channels: int, images: int, epsilon: float) -> Kernel:
    """Pointers: means and variances [2, images, channels] -> mean, variance and 1 / sqrt(variance +
    epsilon) of each channel over all images."""
    numbers = (*parts(channels, channels * images), channels, images * channels)
    return Kernel(STATISTICS.format(epsilon=repr(epsilon)), numbers)


def sums(
    sizes: tuple[int, int, int], channels: int, gradient: str, scaled: bool, shifted: bool
) -> Kernel:
    """Pointers: gradient and x [outer, rows, columns], mean and deviation [channels], scale and
    shift [channels] where there are such -> the sums over the rows of g and of g * n [outer,
    columns]. gradient: g as C over ``outer_gradient`` and ``value``."""
    outer, rows, columns = sizes
    scale = "p[4][channel + k]" if scaled else ""
    shift = f"p[{4 + scaled}][channel + k]" if shifted else ""
    lines = (
        f"const float normed = {NORMED};",
        f"const float value = {argument('normed', scale, shift)};",
        f"const float inner = {gradient};",
    )
    indent = 6 if columns == 1 else 8
    inner = "\n".join(" " * indent + line for line in lines)
    last, elements = 4 + scaled + shifted, 2 * outer * rows * columns
    if columns == 1:
        code = SUMS_OF_ROWS.format(inner=inner, last=last)
        return Kernel(code, (*parts(outer, elements), rows, channels))
    blocks = -(-columns // LINE)
    code = SUMS_OF_COLUMNS.format(inner=inner, last=last, line=LINE)
    return Kernel(code, (*parts(outer * blocks, elements), rows, columns, channels, blocks))


def joined_sums(channels: int, images: int, pixels: int) -> Kernel:
    """Pointers: both sums [images, channels] -> the gradients of scale and shift [channels], and
    both divided by the pixels of a channel."""
    numbers = (*parts(channels, channels * images), channels, images * channels, pixels)
    return Kernel(JOINED_SUMS, numbers)

"""Sums of groups of channels, for group norm and instance norm and their gradients. They are in
float64."""

from __future__ import annotations

from golow.levels.direct.onednn.kernels import Kernel, parts

LINE = 16  # columns that a part of the kernel takes: a cache line of each row

OF_COLUMNS = """\
static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long rows = n[2], columns = n[3], blocks = n[4], all = n[5];
  for (long part = begin; part < end; part++) {{
    const long outer = part / blocks, first = part % blocks * {line}, left = columns - first;
    const long width = left < {line} ? left : {line};
    const float* const x = static_cast<float*>(pointers[0]) + outer * rows * columns + first;
    float* const y = static_cast<float*>(pointers[1]) + outer * columns + first;
    double sums[{line}] = {{}}, squares[{line}] = {{}};
    for (long row = 0; row < rows; row++) {{
      const float* const values = x + row * columns;
      #pragma omp simd
      for (long k = 0; k < width; k++) {{
        const double value = values[k];
        sums[k] += value;
        squares[k] += value * value;
      }}
    }}
    for (long k = 0; k < width; k++) {{
      const double mean = sums[k] / rows;
      y[k] = static_cast<float>(mean);
      y[all + k] = static_cast<float>(squares[k] / rows - mean * mean);
    }}
  }}
}}"""
OF_ROWS = """\
static void body(void* const* pointers, const long* n, long begin, long end) {
  const long columns = n[2], all = n[3];
  float* const y = static_cast<float*>(pointers[1]);
  for (long row = begin; row < end; row++) {
    const float* const x = static_cast<float*>(pointers[0]) + row * columns;
    double sum = 0, square = 0;
    #pragma omp simd reduction(+ : sum, square)
    for (long k = 0; k < columns; k++) {
      const double value = x[k];
      sum += value;
      square += value * value;
    }
    const double mean = sum / columns;
    y[row] = static_cast<float>(mean);
    y[all + row] = static_cast<float>(square / columns - mean * mean);
  }
}"""
OF_GROUPS = """\
static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long width = n[2], all = n[3];
  for (long group = begin; group < end; group++) {{
    const float* const means = static_cast<float*>(pointers[0]) + group * width;
    double mean = 0, variance = 0;
    for (long k = 0; k < width; k++) mean += means[k];
    mean /= width;
    for (long k = 0; k < width; k++) {{
      const double distance = means[k] - mean;
      variance += means[all + k] + distance * distance;
    }}
    const double spread = variance / width + {epsilon};
    for (long k = 0; k < width; k++) {{
      static_cast<float*>(pointers[1])[group * width + k] = static_cast<float>(mean);
      static_cast<float*>(pointers[2])[group * width + k] =
          static_cast<float>(1 / __builtin_sqrt(spread));
    }}
  }}
}}"""

GRADIENTS_OF_COLUMNS = """\
static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long rows = n[2], columns = n[3], blocks = n[4];
  for (long part = begin; part < end; part++) {{
    const long outer = part / blocks, first = part % blocks * {line}, left = columns - first;
    const long width = left < {line} ? left : {line};
    const long place = outer * rows * columns + first, channel = outer * columns + first;
    const float* const gradient = static_cast<float*>(pointers[0]) + place;
    const float* const x = static_cast<float*>(pointers[1]) + place;
    const float* const mean = static_cast<float*>(pointers[2]) + channel;
    const float* const deviation = static_cast<float*>(pointers[3]) + channel;
    double plain[{line}] = {{}}, projected[{line}] = {{}};
    for (long row = 0; row < rows; row++) {{
      const float* const outer_values = gradient + row * columns;
      const float* const values = x + row * columns;
      #pragma omp simd
      for (long k = 0; k < width; k++) {{
        plain[k] += outer_values[k];
        projected[k] += outer_values[k] * ((values[k] - mean[k]) * deviation[k]);
      }}
    }}
    for (long k = 0; k < width; k++) {{
      static_cast<float*>(pointers[4])[channel + k] = static_cast<float>(plain[k]);
      static_cast<float*>(pointers[5])[channel + k] = static_cast<float>(projected[k]);
    }}
  }}
}}"""
GRADIENTS_OF_ROWS = """\
static void body(void* const* pointers, const long* n, long begin, long end) {
  const long columns = n[2];
  for (long row = begin; row < end; row++) {
    const float* const gradient = static_cast<float*>(pointers[0]) + row * columns;
    const float* const x = static_cast<float*>(pointers[1]) + row * columns;
    const float mean = static_cast<float*>(pointers[2])[row];
    const float deviation = static_cast<float*>(pointers[3])[row];
    double plain = 0, projected = 0;
    #pragma omp simd reduction(+ : plain, projected)
    for (long k = 0; k < columns; k++) {
      plain += gradient[k];
      projected += gradient[k] * ((x[k] - mean) * deviation);
    }
    static_cast<float*>(pointers[4])[row] = static_cast<float>(plain);
    static_cast<float*>(pointers[5])[row] = static_cast<float>(projected);
  }
}"""
GRADIENTS_OF_GROUPS = """\
static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long width = n[2], channels = n[3], size = n[4];
  float* const* const p = reinterpret_cast<float* const*>(pointers);
  for (long group = begin; group < end; group++) {{
    const long start = group * width;
    double first = 0, second = 0;
    for (long k = start; k < start + width; k++) {{
      first += {weight} * p[0][k];
      second += {weight} * p[1][k];
    }}
    const double deviation = p[2][start];
    first *= deviation / size;
    second *= deviation / size;
    for (long k = start; k < start + width; k++) {{
      p[{last}][k] = static_cast<float>({weight} * deviation);
      p[{last} + 1][k] = static_cast<float>(-second * deviation);
      p[{last} + 2][k] = static_cast<float>(-first);
    }}
  }}
}}"""


def of_channels(outer: int, rows: int, columns: int) -> Kernel:
    """Pointers: x [outer, rows, columns] -> [2, outer, columns]: the mean and the variance of each
    column over the rows."""
    elements = outer * rows * columns
    if columns == 1:
        return Kernel(OF_ROWS, (*parts(outer, elements), rows, outer))
    blocks = -(-columns // LINE)
    numbers = (*parts(outer * blocks, elements), rows, columns, blocks, outer * columns)
    return Kernel(OF_COLUMNS.format(line=LINE), numbers)


def of_groups(groups: int, width: int, epsilon: float) -> Kernel:
    """Pointers: means and variances of channels [2, groups, width] -> mean and 1 / sqrt(variance +
    epsilon) of the groups, for each of their channels [groups, width]."""
    numbers = (*parts(groups, groups * width), width, groups * width)
    return Kernel(OF_GROUPS.format(epsilon=repr(epsilon)), numbers)


def gradients_of_channels(outer: int, rows: int, columns: int) -> Kernel:
    """Pointers: gradient and x [outer, rows, columns], mean and deviation of each column [outer,
    columns] -> the sums over the rows of gradient, and of gradient * (x - mean) * deviation."""
    elements = 2 * outer * rows * columns
    if columns == 1:
        return Kernel(GRADIENTS_OF_ROWS, (*parts(outer, elements), rows))
    blocks = -(-columns // LINE)
    numbers = (*parts(outer * blocks, elements), rows, columns, blocks)
    return Kernel(GRADIENTS_OF_COLUMNS.format(line=LINE), numbers)


def gradients_of_groups(
    groups: int, width: int, channels: int, size: int, weighted: bool
) -> Kernel:
    """Pointers: both sums [groups, width], deviations of the channels, the weight [channels] if
    weighted -> factor, slope and offset of `GroupNormGradients` [groups, width]. size: elements of
    a group."""
    code = GRADIENTS_OF_GROUPS.format(
        weight="p[3][k % channels]" if weighted else "1.0", last=3 + weighted
    )
    return Kernel(code, (*parts(groups, groups * width), width, channels, size))

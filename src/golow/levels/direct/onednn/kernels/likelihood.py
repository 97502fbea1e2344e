"""The negative log likelihood of targets, and its gradient."""

from __future__ import annotations

from golow.levels.direct.onednn.kernels import Kernel, parts

FORWARD = """\
static void body(void* const* pointers, const long* n, long begin, long end) {
  const long rows = n[2], columns = n[3], ignored = n[4], mean = n[5];
  const float* const logs = static_cast<float*>(pointers[0]);
  const long long* const target = static_cast<long long*>(pointers[1]);
  double total = 0;
  long counted = 0;
  for (long row = 0; row < rows; row++) {
    const long wanted = target[row];
    if (wanted == ignored) continue;
    const bool there = wanted >= 0 && wanted < columns;
    total -= there ? logs[row * columns + wanted] : __builtin_nan("");
    counted++;
  }
  static_cast<float*>(pointers[2])[0] = static_cast<float>(mean ? total / counted : total);
  static_cast<float*>(pointers[3])[0] = static_cast<float>(counted);
}"""
BACKWARD = """\
static void body(void* const* pointers, const long* n, long begin, long end) {
  const long columns = n[2], ignored = n[3], mean = n[4];
  const float gradient = static_cast<float*>(pointers[0])[0];
  const long long* const target = static_cast<long long*>(pointers[1]);
  const float share = mean ? gradient / static_cast<float*>(pointers[2])[0] : gradient;
  for (long row = begin; row < end; row++) {
    float* const to = static_cast<float*>(pointers[3]) + row * columns;
    for (long k = 0; k < columns; k++) to[k] = 0;
    const long wanted = target[row];
    if (wanted != ignored && wanted >= 0 && wanted < columns) to[wanted] = -share;
  }
}"""


def likelihood(rows: int, columns: int, mean: bool, ignored: int) -> Kernel:
    """Pointers: logarithms [rows, columns], targets [rows] -> the loss, and the number of targets
    that are not ``ignored``. A target that is not a column makes the loss NaN."""
    return Kernel(FORWARD, (*parts(1, rows), rows, columns, ignored, int(mean)))


def likelihood_gradient(rows: int, columns: int, mean: bool, ignored: int) -> Kernel:
    """Pointers: the loss's gradient, targets [rows], the number of those that count -> the gradient
    of the logarithms [rows, columns]."""
    return Kernel(BACKWARD, (*parts(rows, rows * columns), columns, ignored, int(mean)))

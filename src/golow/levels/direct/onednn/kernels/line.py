"""One row times a matrix: a linear layer of one sample, whose time is that of reading the weight.
oneDNN reads it at two thirds of what memory gives."""

from __future__ import annotations

from golow.levels.direct.formulas.activation_formulas import with_activation
from golow.levels.direct.onednn.kernels import Kernel, parts
from golow.lower.ir.graph import Activation

# A row is read from end to end, in four chains of additions, so that none waits for another. Where
# x fills half of the nearest cache, several rows are read side by side, and x once for all of them.
# This is done in pieces: a chain of eight times as many sums would be three times as far off.
CODE = """typedef float Floats __attribute__((vector_size(64), aligned(4)));
typedef float Eight __attribute__((vector_size(32)));
typedef float Four __attribute__((vector_size(16)));
static void body(void* const* pointers, const long* n, long begin, long end) {
#ifdef __AVX512F__
  constexpr int ROWS = 8;
#else
  constexpr int ROWS = 4;
#endif
  constexpr long LONG = 4096, PIECE = 512;
  const long inner = n[2];
  const float* const x = static_cast<float*>(pointers[0]);
  const float* const weight = static_cast<float*>(pointers[1]);
%s
  const auto at = [](const float* numbers) { return *reinterpret_cast<const Floats*>(numbers); };
  const auto keep = [&](long part, const float* row, const Floats& sum, long k) {
    Eight eights[2];
    Four fours[2];
    __builtin_memcpy(eights, &sum, sizeof(sum));
    eights[0] += eights[1];
    __builtin_memcpy(fours, eights, sizeof(fours));
    fours[0] += fours[1];
    float total = (fours[0][0] + fours[0][1]) + (fours[0][2] + fours[0][3]);
    for (; k < inner; k++) total += x[k] * row[k];
    y[part] = %s;
  };
  long part = begin;
  for (; inner >= LONG && part + ROWS <= end; part += ROWS) {
    const float* const rows = weight + part * inner;
    Floats sums[ROWS] = {};
    long k = 0;
    while (k + 16 <= inner) {
      Floats some[ROWS] = {};
      for (const long stop = k + PIECE; k + 16 <= inner && k < stop; k += 16) {
        const Floats value = at(x + k);
        for (int i = 0; i < ROWS; i++) some[i] += value * at(rows + i * inner + k);
      }
      for (int i = 0; i < ROWS; i++) sums[i] += some[i];
    }
    for (int i = 0; i < ROWS; i++) keep(part + i, rows + i * inner, sums[i], k);
  }
  for (; part < end; part++) {
    const float* const row = weight + part * inner;
    Floats sums[4] = {};
    long k = 0;
    for (; k + 64 <= inner; k += 64)
      for (int i = 0; i < 4; i++) sums[i] += at(x + k + 16 * i) * at(row + k + 16 * i);
    for (; k + 16 <= inner; k += 16) sums[0] += at(x + k) * at(row + k);
    keep(part, row, (sums[0] + sums[1]) + (sums[2] + sums[3]), k);
  }
}"""


def line_product(
    inner: int, columns: int, biased: bool, residual: bool, activation: Activation | None
) -> Kernel:
    """Pointers: x [inner], weight [columns, inner][, bias][, residual] -> activation(weight x +
    bias + residual) [columns]. Raises KeyError for an activation without formulas."""
    added = [*(["bias"] if biased else []), *(["residual"] if residual else [])]
    pointers = [
        f"  {'' if name == 'y' else 'const '}float* const {name} = "
        f"static_cast<float*>(pointers[{position}]);"
        for position, name in enumerate([*added, "y"], start=2)
    ]
    total = " + ".join(["total", *(f"{name}[part]" for name in added)])
    code = CODE % ("\n".join(pointers), with_activation(total, activation))
    return Kernel(code, (*parts(columns, columns * inner), inner))

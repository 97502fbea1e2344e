"""One row times a matrix: a linear layer of one sample, whose time is that of reading the weight.
oneDNN reads it at two thirds of what memory gives."""

from __future__ import annotations

from golow.levels.vendor.formulas import with_activation
from golow.levels.vendor.onednn.kernels import Kernel, parts
from golow.lower.graph import Activation

# Four chains of additions, so that none waits for another; each row is read from end to end.
CODE = """typedef float Floats __attribute__((vector_size(64), aligned(4)));
static void body(void* const* pointers, const long* n, long begin, long end) {
  const long inner = n[2];
  const float* const x = static_cast<float*>(pointers[0]);
  const float* const weight = static_cast<float*>(pointers[1]);
%s
  for (long part = begin; part < end; part++) {
    const float* const row = weight + part * inner;
    Floats sums[4] = {};
    long k = 0;
    for (; k + 64 <= inner; k += 64)
      for (int i = 0; i < 4; i++)
        sums[i] += *reinterpret_cast<const Floats*>(x + k + 16 * i) *
                   *reinterpret_cast<const Floats*>(row + k + 16 * i);
    const Floats sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    float total = 0;
    for (int i = 0; i < 16; i++) total += sum[i];
    for (; k < inner; k++) total += x[k] * row[k];
    y[part] = %s;
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

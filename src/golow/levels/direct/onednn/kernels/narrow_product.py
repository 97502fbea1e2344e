"""A few rows times a weight of 16, 8 or 4 bits, whose time is that of reading the weight."""

from __future__ import annotations

from pathlib import Path

from golow.levels.direct.formulas.activation_formulas import with_activation
from golow.levels.direct.onednn.kernels import BF16, C_TYPES, Kernel, parts
from golow.lower.ir.graph import Activation

SUMS = Path(__file__).with_suffix(".cpp").read_text(encoding="utf-8")
NUMBERS = (
    """of_numbers<R>(x, static_cast<const {kind}*>(pointers[1]) + part * inner, inner, sums)"""
)
PAIRS = """of_pairs<R>(x, static_cast<const unsigned char*>(pointers[1]) + part * groups * half,
                 scale + part * groups, groups, half, sums)"""

# Rows are taken four at a time: their sums stay in registers, and the weight's row in the nearest
# cache.
CODE = """{sums}
template <int R>
INLINE void some_rows(void* const* pointers, const long* n, long first, long part) {{
  const long inner = n[3], columns = n[4], groups = n[5], half = n[6];
  const float* const x = static_cast<float*>(pointers[0]) + first * inner;
{pointers}
  float sums[R];
  {product};
  for (int r = 0; r < R; r++) {{
    const float total = {total};
    y[(first + r) * columns + part] = {result};
  }}
}}
static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long rows = n[2];
  for (long part = begin; part < end; part++) {{
    long row = 0;
    for (; row + 4 <= rows; row += 4) some_rows<4>(pointers, n, row, part);
    for (; row + 2 <= rows; row += 2) some_rows<2>(pointers, n, row, part);
    if (row < rows) some_rows<1>(pointers, n, row, part);
  }}
}}"""


def narrow_product(
    rows: int,
    weight: tuple[int, ...],
    dtype: str,
    *,
    biased: bool,
    residual: bool,
    activation: Activation | None,
) -> Kernel:
    """Pointers: x [rows, C], weight[, scale][, bias][, residual] -> [rows, K]. weight: its shape,
    as of `NarrowLinear`; dtype: its type; all but bf16 have a scale. Raises KeyError for an
    activation without formulas."""
    columns, *rest = weight
    groups, half = (1, 0) if len(rest) == 1 else rest
    inner = rest[0] if len(rest) == 1 else 2 * groups * half
    scaled = dtype != "bfloat16"
    added = {
        **({"bias": "bias[part]"} if biased else {}),
        **({"residual": "residual[(first + r) * columns + part]"} if residual else {}),
    }
    pointers = [
        f"  {'' if name == 'y' else 'const '}float* const {name} = "
        f"static_cast<float*>(pointers[{position}]);"
        for position, name in enumerate([*(["scale"] if scaled else []), *added, "y"], start=2)
    ]
    plain = NUMBERS.format(kind=C_TYPES[dtype] if scaled else BF16)
    code = CODE.format(
        sums=SUMS,
        pointers="\n".join(pointers),
        product=PAIRS if half else plain,
        total="sums[r] * scale[part]" if scaled and not half else "sums[r]",
        result=with_activation(" + ".join(["total", *added.values()]), activation),
    )
    numbers = (*parts(columns, rows * columns * inner), rows, inner, columns, groups, half)
    return Kernel(code, numbers)

"""Tables of which a step takes few rows: a gradient that is written in those rows alone, beside a
byte for each row that flags them, and the updates of the table. All other rows of the gradient are
zeros that no memory holds."""

from __future__ import annotations

from golow.levels.direct.onednn.kernels import C_TYPES, Kernel, parts
from golow.levels.direct.onednn.kernels.updates import Step
from golow.records.workload import KEPT

HEIGHT = 64  # rows of a part
SUMS = """static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long count = n[2], rows = n[3], width = n[4], skipped = n[5], height = n[6];
  const float* const x = static_cast<float*>(pointers[0]);
  const {index}* const indices = static_cast<{index}*>(pointers[1]);
  float* const y = static_cast<float*>(pointers[2]);
  bool* const flags = static_cast<bool*>(pointers[3]);
  const long top = begin * height, bottom = end * height < rows ? end * height : rows;
  __builtin_memset(flags + top, 0, bottom - top);
  for (long i = 0; i < count; i++) {{
    const long wanted = indices[i], last = rows - 1;
    const long row = wanted < 0 ? 0 : wanted > last ? last : wanted;
    if (row == skipped || row < top || row >= bottom) continue;
    const float* const from = x + i * width;
    float* const to = y + row * width;
    if (flags[row])
      for (long k = 0; k < width; k++) to[k] += from[k];
    else
      for (long k = 0; k < width; k++) to[k] = from[k];
    flags[row] = true;
  }}
}}"""
UPDATE = """template <bool FLAGGED>
INLINE void update(void* const* pointers, long first, long width) {{
{pointers}
  #pragma omp simd
  for (long k = 0; k < width; k++) {{
{statements}
  }}
}}
INLINE bool rests(void* const* pointers, long first, long width) {{
  int bits = {active};
{kept}
  return bits == 0;
}}
static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long rows = n[2], width = n[3], height = n[4];
  const bool* const flags = static_cast<bool*>(pointers[{flags}]);
  const long bottom = end * height < rows ? end * height : rows;
  for (long row = begin * height; row < bottom; row++) {{
    if (flags[row]) update<true>(pointers, row * width, width);
    else if (!rests(pointers, row * width, width)) update<false>(pointers, row * width, width);
  }}
}}"""


def rows_summed(index_dtype: str, rows: int, count: int, width: int, skipped: int) -> Kernel:
    """Pointers: x [count, width], indices [count] -> y [rows, width], flags (bool) [rows]: the
    gradient of `copies.rows_taken`, but for the row ``skipped``, in flagged rows alone."""
    code = SUMS.format(index=C_TYPES[index_dtype])
    numbers = parts(-(-rows // HEIGHT), (rows + count) * width)
    return Kernel(code, (*numbers, count, rows, width, skipped, HEIGHT))


def update(of: Step, rows: int, width: int, in_place: bool) -> Kernel:
    """Pointers: of the step the rows [rows, width], the numbers, flags (bool) [rows] -> the results
    [rows, width]. in_place: results are rows, so that rows without a gradient that do not change
    are left out."""
    given = [*of.rows, *of.numbers]
    made = [f"y{k}" for k in range(len(of.writes))]
    first = len(given) + 1  # of the results, after the flags
    pointers = [
        *(f"  const float* const {name}_row = {_row(k)};" for k, name in enumerate(of.rows)),
        *(
            f"  const float {name} = *static_cast<float*>(pointers[{k}]);"
            for k, name in enumerate(of.numbers, len(of.rows))
        ),
        *(f"  float* const {name}_row = {_row(k)};" for k, name in enumerate(made, first)),
    ]
    statements = [
        "    const float gradient = FLAGGED ? gradient_row[k] : 0.0f;",
        *(f"    const float {name} = {name}_row[k];" for name in of.rows if name != "gradient"),
        *(f"    const float {name} = {text};" for name, text in of.expressions),
        *(f"    {to}_row[k] = {name};" for to, name in zip(made, of.writes, strict=True)),
    ]
    rests = of.rests and in_place
    kept = [_bits(k) for k, name in enumerate(of.rows) if rests and name in KEPT]
    code = UPDATE.format(
        pointers="\n".join(pointers),
        statements="\n".join(statements),
        active=int(not rests),
        kept="\n".join(kept),
        flags=len(given),
    )
    return Kernel(code, (*parts(-(-rows // HEIGHT), rows * width), rows, width, HEIGHT))


def _row(pointer: int) -> str:
    return f"static_cast<float*>(pointers[{pointer}]) + first"


def _bits(pointer: int) -> str:
    return f"  for (long k = 0; k < width; k++) bits |= as_bits(({_row(pointer)})[k]);"

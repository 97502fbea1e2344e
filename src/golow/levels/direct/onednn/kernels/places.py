"""Elements along an axis by an index for each of them, and the way back."""

from __future__ import annotations

from golow.levels.direct.onednn.kernels import C_TYPES, Kernel, parts

PLACE = """      const long wanted = index[(outer * count + j) * inner + k];
      const long row = wanted < 0 ? 0 : wanted > rows - 1 ? rows - 1 : wanted;"""
BODY = """static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long rows = n[2], count = n[3], inner = n[4];
  const {kind}* const x = static_cast<{kind}*>(pointers[0]);
  const {index}* const index = static_cast<{index}*>(pointers[1]);
{rest}
}}"""
GATHERED = """  {kind}* const y = static_cast<{kind}*>(pointers[2]);
  for (long part = begin; part < end; part++) {{
    const long outer = part / count, j = part % count;
    for (long k = 0; k < inner; k++) {{
{place}
      y[part * inner + k] = x[(outer * rows + row) * inner + k];
    }}
  }}"""
SCATTERED = """  {kind}* const y = static_cast<{kind}*>(pointers[{last}]);
  for (long outer = begin; outer < end; outer++) {{
    for (long i = outer * rows * inner; i < (outer + 1) * rows * inner; i++) y[i] = x[i];
    for (long j = 0; j < count; j++) for (long k = 0; k < inner; k++) {{
{place}
      y[(outer * rows + row) * inner + k] {sign} {value};
    }}
  }}"""


def gathered(dtype: str, index_dtype: str, outer: int, rows: int, count: int, inner: int) -> Kernel:
    """Pointers: x [outer, rows, inner], indices [outer, count, inner] -> y [outer, count, inner].
    An index that is out of bounds is the nearest one within."""
    rest = GATHERED.format(kind=C_TYPES[dtype], place=PLACE)
    numbers = parts(outer * count, outer * count * inner)
    return _kernel(rest, dtype, index_dtype, (*numbers, rows, count, inner))


def scattered(
    dtype: str,
    index_dtype: str,
    outer: int,
    rows: int,
    count: int,
    inner: int,
    *,
    add: bool,
    value: str = "",
) -> Kernel:
    """Pointers: x [outer, rows, inner], indices [outer, count, inner], and of the same shape what
    is written or added there, unless it is a number, value -> y, which is x but for these
    places."""
    kind = C_TYPES[dtype]
    given = f"static_cast<{kind}*>(pointers[2])[(outer * count + j) * inner + k]"
    rest = SCATTERED.format(
        kind=kind,
        place=PLACE,
        last=2 if value else 3,
        sign="+=" if add else "=",
        value=value or given,
    )
    numbers = parts(outer, outer * (rows + count) * inner)
    return _kernel(rest, dtype, index_dtype, (*numbers, rows, count, inner))


def _kernel(rest: str, dtype: str, index_dtype: str, numbers: tuple[int, ...]) -> Kernel:
    code = BODY.format(kind=C_TYPES[dtype], index=C_TYPES[index_dtype], rest=rest)
    return Kernel(code, numbers)

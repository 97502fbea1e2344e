"""Rows that are copied: those with given indices, of one axis or of several, and parts that are
joined; and rows that are written or added to."""

from __future__ import annotations

import math
from collections.abc import Sequence

from golow.levels.direct.onednn.kernels import BF16, C_TYPES, Kernel, parts

ROWS = """static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long count = n[2], rows = n[3], width = n[4];
  const {kind}* const x = static_cast<{kind}*>(pointers[0]);
  const {index}* const indices = static_cast<{index}*>(pointers[1]);
  {made}* const y = static_cast<{made}*>(pointers[2]);
  for (long part = begin; part < end; part++) {{
    const long wanted = indices[part % count], last = rows - 1;
    const long row = wanted < 0 ? 0 : wanted > last ? last : wanted;
    const {kind}* const from = x + (part / count * rows + row) * width;
    {made}* const to = y + part * width;
    for (long k = 0; k < width; k++) to[k] = {number};
  }}
}}"""
STRIP = 64  # columns of a small result that a part of the kernel sums
BLOCK, BLOCKS = 65_536, 64  # elements, at least, and number of blocks of rows of a large result
SUMS = """static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long count = n[2], rows = n[3], width = n[4], skipped = n[5];
  const long columns = n[6], strips = n[7], height = n[8], blocks = n[9];
  const {index}* const indices = static_cast<{index}*>(pointers[1]);
  for (long part = begin; part < end; part++) {{
    const long outer = part / (blocks * strips), top = part / strips % blocks * height;
    const long bottom = top + height < rows ? top + height : rows;
    const long first = part % strips * columns, left = width - first;
    const long size = left < columns ? left : columns;
    const {kind}* const from = static_cast<{kind}*>(pointers[0]) + outer * count * width + first;
    {kind}* const to = static_cast<{kind}*>(pointers[2]) + outer * rows * width + first;
    if (size == width) {{
      __builtin_memset(to + top * width, 0, (bottom - top) * width * sizeof({kind}));
    }} else {{
      for (long row = top; row < bottom; row++)
        for (long k = 0; k < size; k++) to[row * width + k] = 0;
    }}
    for (long i = 0; i < count; i++) {{
      const long wanted = indices[i], last = rows - 1;
      const long row = wanted < 0 ? 0 : wanted > last ? last : wanted;
      if (row == skipped || row < top || row >= bottom) continue;
      for (long k = 0; k < size; k++) to[row * width + k] += from[i * width + k];
    }}
  }}
}}"""
PLACE = """      long row = 0;
      for (long axis = 0; axis < axes; axis++) {{
        const long size = sizes[axis];
        long wanted = static_cast<const {index}*>(indices[axis])[i];
        if (wanted < 0) wanted += size;
        row = row * size + (wanted < 0 ? 0 : wanted > size - 1 ? size - 1 : wanted);
      }}"""
PUT = """static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long count = n[2], rows = n[3], width = n[4], strips = n[5], axes = n[6];
  const long* const sizes = n + 7;
  void* const* const indices = pointers + 2;
  for (long part = begin; part < end; part++) {{
    const long outer = part / strips, first = part % strips * {strip}, left = width - first;
    const long columns = left < {strip} ? left : {strip};
    const {kind}* const x = static_cast<{kind}*>(pointers[0]) + outer * rows * width + first;
    const {kind}* const given = static_cast<{kind}*>(pointers[1]) + outer * count * width + first;
    {kind}* const y = static_cast<{kind}*>(pointers[axes + 2]) + outer * rows * width + first;
    for (long row = 0; row < rows; row++)
      for (long k = 0; k < columns; k++) y[row * width + k] = x[row * width + k];
    for (long i = 0; i < count; i++) {{
{place}
      for (long k = 0; k < columns; k++) y[row * width + k] {sign} given[i * width + k];
    }}
  }}
}}"""
PLACES = """static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long count = n[2], rows = n[3], width = n[4], axes = n[5];
  const long* const sizes = n + 6;
  void* const* const indices = pointers + 1;
  const {kind}* const x = static_cast<{kind}*>(pointers[0]);
  {kind}* const y = static_cast<{kind}*>(pointers[axes + 1]);
  for (long part = begin; part < end; part++) {{
    const long outer = part / count, i = part % count;
{place}
    const {kind}* const from = x + (outer * rows + row) * width;
    {kind}* const to = y + part * width;
    for (long k = 0; k < width; k++) to[k] = from[k];
  }}
}}"""
JOINED = """static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long count = n[2];
  {kind}* to = static_cast<{kind}*>(pointers[count]) + begin * n[3];
  for (long part = begin; part < end; part++) {{
    for (long source = 0; source < count; source++) {{
      const long width = n[4 + source];
      const {kind}* const from = static_cast<{kind}*>(pointers[source]) + part * width;
      for (long k = 0; k < width; k++) to[k] = from[k];
      to += width;
    }}
  }}
}}"""


def rows_taken(
    dtype: str, index_dtype: str, outer: int, rows: int, count: int, width: int
) -> Kernel:
    """Pointers: x [outer, rows, width], indices [count] -> y [outer, count, width]. An index that
    is out of bounds is the nearest one within, as in NumPy's mode "clip"."""
    kind = C_TYPES[dtype]
    code = ROWS.format(kind=kind, index=C_TYPES[index_dtype], made=kind, number="from[k]")
    numbers = parts(outer * count, outer * count * width)
    return Kernel(code, (*numbers, count, rows, width))


def rows_widened(index_dtype: str, rows: int, count: int, width: int) -> Kernel:
    """Pointers: x, bf16 [rows, width], indices [count] -> y, float32 [count, width]; otherwise as
    `rows_taken`."""
    code = ROWS.format(
        kind=BF16, index=C_TYPES[index_dtype], made="float", number="widened(from[k])"
    )
    return Kernel(code, (*parts(count, count * width), count, rows, width))


def rows_summed(
    dtype: str, index_dtype: str, outer: int, rows: int, count: int, width: int, skipped: int
) -> Kernel:
    """Pointers: x [outer, count, width], indices [count] -> y [outer, rows, width]: the gradient of
    `rows_taken`, but for zeros in the row ``skipped``. A part has some columns of a small result,
    and some rows of a large one, most of which is only set to zero."""
    code = SUMS.format(kind=C_TYPES[dtype], index=C_TYPES[index_dtype])
    blocks = max(1, min(BLOCKS, rows, rows * width // BLOCK))
    height = -(-rows // blocks)
    blocks = -(-rows // height)
    columns = width if blocks > 1 else STRIP
    strips = -(-width // columns)
    numbers = parts(outer * blocks * strips, outer * (rows + count) * width)
    return Kernel(code, (*numbers, count, rows, width, skipped, columns, strips, height, blocks))


def places_taken(
    dtype: str, index_dtype: str, outer: int, sizes: Sequence[int], count: int, width: int
) -> Kernel:
    """Pointers: x [outer, *sizes, width], for each of these axes its indices [count] -> y [outer,
    count, width]. A negative index counts from the end, and one that is out of bounds is the
    nearest one within."""
    index = C_TYPES[index_dtype]
    code = PLACES.format(kind=C_TYPES[dtype], place=PLACE.format(index=index))
    numbers = parts(outer * count, outer * count * width)
    return Kernel(code, (*numbers, count, math.prod(sizes), width, len(sizes), *sizes))


def places_put(
    dtype: str,
    index_dtype: str,
    outer: int,
    sizes: Sequence[int],
    count: int,
    width: int,
    *,
    add: bool,
) -> Kernel:
    """Pointers: x [outer, *sizes, width], what is written or added [outer, count, width], for each
    of these axes its indices [count], as of `places_taken` -> y, which is x but for these
    places."""
    place = PLACE.format(index=C_TYPES[index_dtype])
    code = PUT.format(kind=C_TYPES[dtype], place=place, strip=STRIP, sign="+=" if add else "=")
    rows, strips = math.prod(sizes), -(-width // STRIP)
    numbers = parts(outer * strips, outer * (rows + count) * width)
    return Kernel(code, (*numbers, count, rows, width, strips, len(sizes), *sizes))


def parts_joined(dtype: str, outer: int, widths: Sequence[int]) -> Kernel:
    """Pointers: the parts [outer, width] -> their rows side by side [outer, sum of widths]."""
    total = sum(widths)
    numbers = parts(outer, outer * total)
    return Kernel(JOINED.format(kind=C_TYPES[dtype]), (*numbers, len(widths), total, *widths))

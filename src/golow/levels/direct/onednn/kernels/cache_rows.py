"""Rows that are written into a cache, from a position on that is data."""

from __future__ import annotations

import math
from collections.abc import Sequence

from golow.levels.direct.onednn.kernels import C_TYPES, Kernel, parts

AXES = 4  # that the kernel knows
CODE = """static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long *sizes = n + 4, *from = n + 8, *to = n + 12;
  const {kind}* const rows = static_cast<{kind}*>(pointers[0]);
  const long long* const positions = static_cast<const long long*>(pointers[1]);
  {kind}* const cache = static_cast<{kind}*>(pointers[2]);
  const long last = n[2], texts = n[16];
  for (long part = begin; part < end; part++) {{
    long left = part, x = 0, y = 0, text = 0;
    for (int axis = 2; axis >= 0; left /= sizes[axis], axis--) {{
      const long own = left % sizes[axis];
      x += own * from[axis], y += own * to[axis], text += axis == texts ? own : 0;
    }}
    const long position = positions[text];
    y += (position < 0 ? 0 : position > last ? last : position) * n[3];
    if (from[3] == 1 && to[3] == 1)
      for (long k = 0; k < sizes[3]; k++) cache[y + k] = rows[x + k];
    else
      for (long k = 0; k < sizes[3]; k++) cache[y + k * to[3]] = rows[x + k * from[3]];
  }}
}}"""


def cache_rows(
    dtype: str,
    shape: Sequence[int],
    steps: Sequence[int],
    cache: Sequence[int],
    axis: int,
    positions: int = 1,
) -> Kernel:
    """Pointers: rows, position (int64) -> a cache of the shape ``cache``, row-major, of which only
    these rows are written. shape, steps: of the rows, of at most four axes. positions: how many
    there are: if several, one for each element of the first axis. A position at which not all rows
    are within is the nearest one, so that no other memory is written."""
    of_cache = [math.prod(cache[k + 1 :]) for k in range(len(cache))]
    extra = AXES - len(shape)
    sizes, from_, to = ([fill] * extra + [*item] for fill, item in (
        (1, shape), (0, steps), (0, of_cache),
    ))  # fmt: skip
    numbers = parts(math.prod(shape[:-1]), math.prod(shape))
    texts = extra if positions > 1 else AXES
    last = cache[axis] - shape[axis]
    code = CODE.format(kind=C_TYPES[dtype])
    return Kernel(code, (*numbers, last, of_cache[axis], *sizes, *from_, *to, texts))

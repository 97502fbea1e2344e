"""Generates and launches `joined_copies.cu`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.copies import is_turned
from golow.levels.direct.cudnn.shared_kernels.elements import VALUES
from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import (
    BUSY,
    WIDE,
    access_of,
    as_index,
    indices_of,
    macro,
    reach,
)
from golow.levels.direct.cudnn.shared_kernels.geometry import VECTOR, flat, vector
from golow.levels.direct.kernel_views import Axes, View, merged_axes

FILE = FOLDER / "joined_copies.cu"
MOST = 16  # copies in one launch: a thread compares its number with one end after the other


class Part(NamedTuple):
    """A copy of the elements at the indices of a shape, as `strided_copy` takes it."""

    source: View
    target: View
    shape: tuple[int, ...]

    @property
    def joins(self) -> bool:
        """True if it may share a launch: its contiguous reads and writes are along the same
        axis."""
        return not is_turned(self.source, self.target, self.shape)


def copies(parts: Sequence[Part]) -> Kernel:
    """Pointers: the sources -> the targets; views start and types are converted as in
    `strided_copy`. Every part `joins`, and has elements. Raises ValueError for more than `MOST`."""
    if len(parts) > MOST:
        raise ValueError(f"{len(parts)} copies in a launch; the limit is {MOST}")
    axes = [merged_axes(part.shape, part[:2], 1) for part in parts]
    most = sum(math.prod(part.shape) for part in parts) // BUSY
    widths = [_width(part, seen, most) for part, seen in zip(parts, axes, strict=True)]
    ends = np.cumsum([math.prod(p.shape) // w for p, w in zip(parts, widths, strict=True)])
    numbers = {f"end_{k}": int(end) for k, end in enumerate(ends)}
    lines: list[str] = []
    for k, (part, seen, width) in enumerate(zip(parts, axes, widths, strict=True)):
        numbers.update(_numbers(k, part, seen, width))
        lines += _lines(k, seen, width)
    wide = max(reach(part[:2], seen) for part, seen in zip(parts, axes, strict=True)) >= WIDE
    index = np.uint64 if wide or ends[-1] >= WIDE else np.uint32
    pointers = [f"const {C_TYPES[part.source.dtype]}* x{k}_in" for k, part in enumerate(parts)]
    pointers += [f"{C_TYPES[part.target.dtype]}* y{k}_in" for k, part in enumerate(parts)]
    head = (
        f"using Index = {'unsigned' if index is np.uint32 else 'size_t'};",
        f"#define POINTERS {', '.join(pointers)}",
        f"#define SIZES {''.join(f', Index {name}' for name in numbers)}",
        macro("COPY", lines),
    )
    grid, block = flat(int(ends[-1]), 1)
    scalars = (index(ends[-1]), *(as_index(index, number) for number in numbers.values()))
    return Kernel(
        FILE, "parts", grid, block, scalars, 0, VECTOR + VALUES + "\n".join(head) + "\n\n"
    )


def _width(part: Part, axes: Axes, most: int) -> int:
    """The longest vector that both tensors have, and that leaves enough threads: at most this many
    elements each."""
    width = vector(part.source.dtype, part.target.dtype)
    while width > 1:
        views = zip(part[:2], axes.strides, strict=True)
        if width <= most and all(access_of(v, s, axes, width) == "vector" for v, s in views):
            break
        width //= 2
    return width


def _numbers(k: int, part: Part, axes: Axes, width: int) -> Iterator[tuple[str, int]]:
    """Sizes and strides, which are arguments, so that shapes share the code. The last axis counts
    vectors."""
    last = len(axes.sizes) - 1
    for axis in range(1, last + 1):
        yield f"p{k}_size_{axis}", axes.sizes[axis] // (width if axis == last else 1)
    for name, view, steps in zip("xy", part[:2], axes.strides, strict=True):
        yield f"{name}{k}_start", view.start
        for axis, step in enumerate(steps):
            yield f"{name}{k}_{axis}", step * (width if axis == last else 1)


def _lines(k: int, axes: Axes, width: int) -> Iterator[str]:
    begin = f" - end_{k - 1}" if k else ""
    yield f"{'else ' if k else ''}if (i < end_{k}) {{"
    yield from (line.replace("size_", f"p{k}_size_") for line in indices_of(axes, f"i{begin}"))
    places = []
    for name in (f"x{k}", f"y{k}"):
        terms = (f"i_{axis} * {name}_{axis}" for axis in range(len(axes.sizes)))
        places.append(f"{name}_in + ({' + '.join([f'{name}_start', *terms])})")
    yield f"copy<{width}>({', '.join(places)});"
    yield "}"

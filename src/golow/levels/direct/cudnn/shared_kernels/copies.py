"""Copies from one order in memory to another."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.elements import VALUES
from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import (
    BUSY,
    WIDE,
    Statement,
    Written,
    as_index,
    fused,
    input_name,
    macro,
    reach,
)
from golow.levels.direct.cudnn.shared_kernels.geometry import VECTOR, flat, vector
from golow.levels.direct.cudnn.shared_kernels.packed_rows import packed_rows, packs_rows
from golow.levels.direct.kernel_views import Axes, View, merged_axes

FILE = FOLDER / "copies.cu"
# Both innermost axes must be this long for a copy in tiles: from a shorter one, threads read or
# write side by side anyway.
SHORTEST = 8


def strided_copy(source: View, target: View, shape: Sequence[int]) -> Kernel:
    """Pointers: source -> target, both seen at the indices of ``shape`` and multiples of 16 bytes;
    a view may start at any element. Types are converted; integers stay exact."""
    axes = merged_axes(shape, (source, target), 1)
    side = _beside(axes)
    if side is not None:
        return _turned(source, target, axes, side)
    if packs_rows(source, target, axes):
        return packed_rows(source, target, axes)
    identity = Statement("t0", source.dtype, input_name(0))
    return fused([identity], [source], [Written(identity.name, target)], shape)


def is_turned(source: View, target: View, shape: Sequence[int]) -> bool:
    """True if the copy is made in tiles, since elements are adjacent along different axes."""
    return _beside(merged_axes(shape, (source, target), 1)) is not None


def _beside(axes: Axes) -> int | None:
    """The axis along which the source's elements are adjacent, if it is not the target's."""
    steps, last = axes.strides[0], len(axes.sizes) - 1
    if steps[last] in (0, 1) or axes.strides[1][last] != 1 or axes.sizes[last] < SHORTEST:
        return None
    found = (k for k in range(last) if steps[k] == 1 and axes.sizes[k] >= SHORTEST)
    return next(found, None)


def _turned(source: View, target: View, axes: Axes, side: int) -> Kernel:
    last = len(axes.sizes) - 1
    here, there = axes.strides
    width_a = _width(source, here, axes.sizes[side], side)
    width_b = _width(target, there, axes.sizes[last], last)
    while width_a * width_b > 1 and math.prod(axes.sizes) < BUSY * width_a * width_b:
        width_a, width_b = (
            (width_a // 2, width_b) if width_a >= width_b else (width_a, width_b // 2)
        )
    across = 8 if width_a == width_b else 2 if width_a > width_b else 16
    numbers = {
        "size_a": axes.sizes[side] // width_a,
        "size_b": axes.sizes[last] // width_b,
        "x_b": here[last],
        "y_a": there[side],
        "x_start": source.start,
        "y_start": target.start,
    }
    outer = [axis for axis in range(last) if axis != side]
    locate = []
    for axis in reversed(outer):
        numbers |= {
            f"n_{axis}": axes.sizes[axis],
            f"x_{axis}": here[axis],
            f"y_{axis}": there[axis],
        }
        locate.append(f"const Index i_{axis} = rest % n_{axis}; rest /= n_{axis};")
    for name in ("x", "y"):
        terms = [f"{name}_start", *(f"i_{axis} * {name}_{axis}" for axis in outer)]
        locate.append(f"const Index {name}_place = {' + '.join(terms)};")
    tiles = -(-numbers["size_a"] // across) * -(-numbers["size_b"] // (32 // across))
    count = 32 * tiles * math.prod(axes.sizes[axis] for axis in outer)
    wide = max(count, reach((source, target), axes)) >= WIDE
    index = np.uint64 if wide else np.uint32
    types = [C_TYPES[source.dtype], C_TYPES[target.dtype]]
    lines = (
        f"using Index = {'size_t' if wide else 'unsigned'};",
        f"using X = {types[0]};",
        f"using Y = {types[1]};",
        f"#define VA {width_a}",
        f"#define VB {width_b}",
        f"#define ACROSS {across}",
        f"#define POINTERS const {types[0]}* x0_in, {types[1]}* y0_in",
        f"#define SIZES {''.join(f', Index {name}' for name in numbers)}",
        macro("LOCATE", locate),
    )
    grid, block = flat(count, 1)
    scalars = (index(count), *(as_index(index, number) for number in numbers.values()))
    code = VECTOR + VALUES + "\n".join(lines) + "\n\n"
    return Kernel(FILE, "turned", grid, block, scalars, 0, code)


def _width(view: View, steps: Sequence[int], size: int, along: int) -> int:
    """The longest vector along an axis that begins at multiples of its length everywhere."""
    places = (view.start, size, *(step for axis, step in enumerate(steps) if axis != along))
    return math.gcd(vector(view.dtype), *places)

"""A tensor surrounded by a constant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES, ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import Layout, dense
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import WIDE, macro
from golow.levels.direct.cudnn.shared_kernels.geometry import VECTOR, flat
from golow.levels.direct.cudnn.steps.built_plan import aligned
from golow.levels.direct.formulas.literals import number
from golow.levels.direct.implementation import Implementation
from golow.levels.direct.kernel_views import View
from golow.lower.operators.pad import Pad

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")


def pad(build: Builder, arguments: Pad) -> None:
    """Write x, and the constant around it; negative padding cuts x. Images keep their channels side
    by side."""
    x, shape = build.values.view(arguments.x), build.current.output().shape
    image = dense(x.layout, x.shape).order == "channels_last"
    layout = Layout(x.dtype, "channels_last", shape[1]) if image else Layout(x.dtype)
    result = build.memory.new(build.current.output().name, shape, layout)
    floating = build.current.output().dtype == "float32"
    value = number(arguments.value) if floating else f"{int(arguments.value)}LL"
    base, start = aligned(x)
    read = View(x.dtype, x.layout.strides(x.shape), start)
    written = View(x.dtype, layout.strides(shape))
    kernel = kernel_of(read, written, x.shape, shape, arguments.before, value)
    build.steps.kernel(kernel, [base], [result])
    build.values.define(0, result)


def kernel_of(
    read: View,
    written: View,
    sizes: Sequence[int],
    shape: Sequence[int],
    before: Sequence[int],
    value: str,
) -> Kernel:
    """Pointers: x -> y, multiples of 16 bytes. sizes, shape: of both; before: elements of the
    constant in front of x along each axis, negative for those of x that are left out. value: in C.
    """
    order = sorted(range(len(shape)), key=lambda axis: -written.strides[axis])
    width = _width(read, written, sizes, shape, before, order[-1]) if order else 1
    lines = ["Index rest = i;"]
    places, sources, inside = [str(written.start)], [str(read.start)], ["true"]
    for axis in reversed(order):
        each = width if axis == order[-1] else 1
        size, first, old = (n // each for n in (shape[axis], before[axis], sizes[axis]))
        lines.append(f"const long long i_{axis} = rest % {size}; rest /= {size};")
        lines.append(f"const long long j_{axis} = i_{axis} - ({first});")
        places.append(f"i_{axis} * {each * written.strides[axis]}")
        sources.append(f"j_{axis} * {each * read.strides[axis]}")
        if first or old != size:
            inside.append(f"j_{axis} >= 0 && j_{axis} < {old}")
    lines.append(f"const bool inside = {' && '.join(inside)};")
    lines.append(f"const long long place = {' + '.join(places)};")
    lines.append(f"const long long from = {' + '.join(sources)};")
    count = math.prod(shape) // width
    index = np.uint32 if count < WIDE else np.uint64
    text = (
        f"using Index = {'unsigned' if index is np.uint32 else 'size_t'};",
        f"using T = {C_TYPES[read.dtype]};",
        f"#define WIDTH {width}",
        f"#define CONSTANT ({value})",
        macro("LOCATE", lines),
    )
    grid, block = flat(max(count, 1), 1)
    return Kernel(FILE, "pad", grid, block, (index(count),), 0, VECTOR + "\n".join(text) + "\n\n")


def _width(
    read: View,
    written: View,
    sizes: Sequence[int],
    shape: Sequence[int],
    before: Sequence[int],
    last: int,
) -> int:
    """Elements of 16 bytes, or fewer, that are adjacent in both and are all inside or not."""
    if (read.strides[last], written.strides[last]) != (1, 1):
        return 1
    others = [axis for axis in range(len(shape)) if axis != last]
    steps = [view.strides[axis] for view in (read, written) for axis in others]
    ends = (sizes[last], shape[last], before[last])
    return math.gcd(16 // ITEM_BYTES[read.dtype], read.start, written.start, *ends, *steps)


IMPLEMENTATIONS = (Implementation(Pad, pad),)

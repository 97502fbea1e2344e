"""A roll along any axes as one copy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.vendor.cudnn.kernels import C_TYPES, ITEM_BYTES, Kernel
from golow.levels.vendor.cudnn.kernels.fused import WIDE, macro, reach
from golow.levels.vendor.cudnn.kernels.geometry import VECTOR, flat
from golow.levels.vendor.cudnn.layouts import Layout, dense, fills_memory
from golow.levels.vendor.cudnn.steps import aligned
from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.views import Axes, View
from golow.lower.operators.roll import Roll

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder

FILE = Path(__file__).with_suffix(".cu")


def roll(build: Builder, arguments: Roll) -> None:
    """The result lies as its operand does, unless that has gaps."""
    x = build.view(arguments.x)
    like = dense(x.layout, x.shape)
    result = build.result(0, like if fills_memory(like, x.shape) else Layout(x.dtype))
    (base, first), (there, start) = aligned(x), aligned(result)
    read = View(x.dtype, x.layout.strides(x.shape), first)
    written = View(x.dtype, result.layout.strides(x.shape), start)
    starts = dict(zip(arguments.axes, arguments.starts, strict=True))
    build.kernel(kernel_of(read, written, x.shape, starts), [base], [there])
    build.define(0, result)


def kernel_of(read: View, written: View, shape: Sequence[int], starts: Mapping[int, int]) -> Kernel:
    """Pointers: x -> y, both seen at the indices of ``shape``. starts: by axis."""
    order = sorted(range(len(shape)), key=lambda axis: -written.strides[axis])
    width = _width(read, written, shape, starts, order[-1])
    lines = ["Index rest = i;"]
    places, sources = [str(written.start)], [str(read.start)]
    for axis in reversed(order):
        size, each = shape[axis], 1
        if axis == order[-1]:
            size, each = size // width, width
        lines.append(f"const Index i_{axis} = rest % {size}; rest /= {size};")
        source = f"i_{axis}"
        if axis in starts:
            source, start = f"j_{axis}", starts[axis]
            lines.append(
                f"const Index j_{axis} = i_{axis} < {size - start} ? i_{axis} + {start}"
                f" : i_{axis} - {size - start};"
            )
        places.append(f"i_{axis} * {each * written.strides[axis]}")
        sources.append(f"{source} * {each * read.strides[axis]}")
    lines.append(f"const Index place = {' + '.join(places)};")
    lines.append(f"const Index from = {' + '.join(sources)};")
    count = math.prod(shape)
    far = reach((read, written), Axes(tuple(shape), (read.strides, written.strides)))
    index = np.uint32 if far < WIDE else np.uint64
    text = (
        f"using Index = {'unsigned' if index is np.uint32 else 'size_t'};",
        f"using X = {C_TYPES[read.dtype]};",
        f"#define WIDTH {width}",
        macro("LOCATE", lines),
    )
    grid, block = flat(max(count, 1), width)
    code = VECTOR + "\n".join(text) + "\n\n"
    return Kernel(FILE, "roll", grid, block, (index(count // width),), 0, code)


def _width(
    read: View, written: View, shape: Sequence[int], starts: Mapping[int, int], last: int
) -> int:
    """Elements of 16 bytes, or fewer, that lie side by side and stay so."""
    if last in starts or (read.strides[last], written.strides[last]) != (1, 1):
        return 1
    steps = [view.strides[axis] for view in (read, written) for axis in range(len(shape))]
    places = [step for step in steps if step != 1]
    return math.gcd(16 // ITEM_BYTES[read.dtype], shape[last], read.start, written.start, *places)


IMPLEMENTATIONS = (Implementation(Roll, roll),)

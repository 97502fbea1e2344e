"""A roll along any axes as one copy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES, ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import Layout, dense, fills_memory, layout_of
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import WIDE, macro, reach
from golow.levels.direct.cudnn.shared_kernels.geometry import VECTOR, flat
from golow.levels.direct.cudnn.steps.built_plan import aligned
from golow.levels.direct.implementation import Implementation
from golow.levels.direct.kernel_views import Axes, View
from golow.levels.direct.split_axes import Axis
from golow.lower.operators.roll import Roll

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")


class Source(NamedTuple):
    """Source of the copy: its type, the parts of each axis, and its first element."""

    dtype: str
    axes: tuple[Axis, ...]
    start: int = 0


def roll(build: Builder, arguments: Roll) -> None:
    """The result is stored as its operand is, unless that has gaps. A view in parts is read as it
    is stored."""
    shape, view = build.current.output().shape, build.values.folded(arguments.x)
    x, strides = view.tensor, view.strides
    layout = Layout(x.dtype)
    if strides is not None:
        like = dense(layout_of(x.dtype, shape, strides), shape)
        layout = like if fills_memory(like, shape) else layout
    result = build.values.result(0, layout)
    (base, first), (there, start) = aligned(x), aligned(result)
    read = Source(x.dtype, view.axes, first)
    written = View(x.dtype, result.layout.strides(shape), start)
    starts = dict(zip(arguments.axes, arguments.starts, strict=True))
    build.steps.kernel(kernel_of(read, written, shape, starts), [base], [there])
    build.values.define(0, result)


def kernel_of(
    read: Source, written: View, shape: Sequence[int], starts: Mapping[int, int]
) -> Kernel:
    """Pointers: x -> y, both seen at the indices of ``shape``. starts: by axis."""
    order = sorted(range(len(shape)), key=lambda axis: -written.strides[axis])
    width = _width(read, written, starts, order[-1])
    lines = ["Index rest = i;"]
    places, sources = [str(written.start)], [str(read.start)]
    for axis in reversed(order):
        each = width if axis == order[-1] else 1
        size = shape[axis] // each
        lines.append(f"const Index i_{axis} = rest % {size}; rest /= {size};")
        source = f"i_{axis}"
        if axis in starts:
            source, start = f"j_{axis}", starts[axis]
            lines.append(
                f"const Index j_{axis} = i_{axis} < {size - start} ? i_{axis} + {start}"
                f" : i_{axis} - {size - start};"
            )
        places.append(f"i_{axis} * {each * written.strides[axis]}")
        sources += _of_parts(source, read.axes[axis], each)
    lines.append(f"const Index place = {' + '.join(places)};")
    lines.append(f"const Index from = {' + '.join(sources)};")
    count = math.prod(shape)
    index = np.uint32 if _reach(read, written, shape) < WIDE else np.uint64
    text = (
        f"using Index = {'unsigned' if index is np.uint32 else 'size_t'};",
        f"using X = {C_TYPES[read.dtype]};",
        f"#define WIDTH {width}",
        macro("LOCATE", lines),
    )
    grid, block = flat(max(count, 1), width)
    code = VECTOR + "\n".join(text) + "\n\n"
    return Kernel(FILE, "roll", grid, block, (index(count // width),), 0, code)


def _of_parts(index: str, axis: Axis, each: int) -> Iterator[str]:
    """Where the index of an axis is read: a term for each of its parts. each: the elements that an
    index of the innermost part stands for."""
    below = 1
    for part in reversed(axis):
        size = part.size // each
        inner = index if below == 1 else f"{index} / {below}"
        outermost = part is axis[0]
        yield f"({inner if outermost else f'{inner} % {size}'}) * {each * part.step}"
        below, each = below * size, 1


def _width(read: Source, written: View, starts: Mapping[int, int], last: int) -> int:
    """Elements of 16 bytes, or fewer, that are adjacent and stay so."""
    inner = read.axes[last][-1:]
    if last in starts or not inner or (inner[0].step, written.strides[last]) != (1, 1):
        return 1
    steps = [part.step for axis in read.axes for part in axis if part.step != 1]
    steps += [step for step in written.strides if step != 1]
    return math.gcd(16 // ITEM_BYTES[read.dtype], inner[0].size, read.start, written.start, *steps)


def _reach(read: Source, written: View, shape: Sequence[int]) -> int:
    """The largest index of any element, or their number if it is larger."""
    parts = [part for axis in read.axes for part in axis]
    far = read.start + sum((part.size - 1) * part.step for part in parts)
    return max(far, reach((written,), Axes(tuple(shape), (written.strides,))))


IMPLEMENTATIONS = (Implementation(Roll, roll),)

"""Sums and means over axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.constants import DST, REDUCTION_MEAN, REDUCTION_SUM, SRC
from golow.levels.direct.onednn.bindings.library import Descriptor, number
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels import WORTH_A_THREAD, Kernel
from golow.levels.direct.onednn.kernels import columns as columns_kernels
from golow.levels.direct.onednn.kernels import rows as rows_kernels
from golow.levels.direct.onednn.steps.array_steps import of_arrays
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.strided_views import dense, fits, row_major
from golow.levels.direct.onednn.steps.value_views import ITEM_BYTES
from golow.levels.direct.refusing import refuse_integers
from golow.lower.operators.reduce import Reduce
from golow.lower.plan.memory_traffic import SCRATCH

FEW = 64  # rows, and pieces of one

UFUNCS: dict[str, Any] = {
    "sum": np.add,
    "product": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


class Part(NamedTuple):
    """Neighbouring axes in memory that are reduced: x is [outer, rows, columns] before."""

    outer: int
    rows: int
    columns: int


class Reduction(NamedTuple):
    """A value as it is stored, the parts of it that are reduced in turn, and how the result is
    stored."""

    x: Tensor
    parts: tuple[Part, ...]
    strides: tuple[int, ...]


def reduce(build: Builder, arguments: Reduce) -> None:
    """By generated kernels, one for each run of reduced axes that are neighbours in memory. oneDNN
    keeps the reduced axes with size 1; its result is row-major."""
    if build.generates and _with_kernel(build, arguments):
        return
    if arguments.function not in ("sum", "mean") or build.current.output().dtype != "float32":
        _with_numpy(build, arguments)
        return
    x, output = build.values.tensor(arguments.x), build.current.output()
    shape = tuple(1 if i in arguments.axes else n for i, n in enumerate(x.shape))
    target = Descriptor.plain(shape)
    if shape == x.shape:
        # A copy, because the builder cannot know that this operation may be a view.
        primitive = Primitive(build.engine, "reorder", x.layout, target)
    else:
        algorithm = REDUCTION_MEAN if arguments.function == "mean" else REDUCTION_SUM
        primitive = Primitive(
            build.engine, "reduction", algorithm, x.layout, target, number(0.0), number(0.0)
        )
    made = build.memory.new(output.name, output.shape, target)
    build.steps.call(primitive, {SRC: x}, {DST: made})
    build.values.define(0, made._replace(descriptor=Descriptor.plain(output.shape)))


def _with_kernel(build: Builder, arguments: Reduce) -> bool:
    """Add a kernel for each part and return True, if there are kernels for all."""
    found, output = _as_it_lies(build, arguments), build.current.output()
    if found is None:
        return False
    x, kernels = found.x, list[Kernel]()
    if x.dtype == "float32":
        found = found._replace(parts=tuple(_shared(found.parts)))
    for part in found.parts:
        kernel = _kernel(arguments.function, x.dtype, output.dtype, part)
        if kernel is None or (len(found.parts) > 1 and x.dtype != "float32"):
            return False
        kernels.append(kernel)
    layout = None
    if output.dtype == "float32":
        layout = Descriptor.strided(output.shape, found.strides).settled()
    made = build.memory.new(output.name, output.shape, layout, output.dtype)
    for part, kernel in zip(found.parts, kernels, strict=True):
        size = part.outer * part.columns
        result = made if part is found.parts[-1] else _between(build, size)
        if size:
            build.steps.kernel(kernel, [x], [result])
        x = result
    build.values.define(0, made)
    return True


def _shared(parts: Iterable[Part]) -> Iterator[Part]:
    """The parts, of which few long rows come as more and shorter ones that are reduced in turn: one
    thread computes a row. The library would add up all its numbers one after the other in float32.
    """
    for part in parts:
        pieces = _pieces(part.rows) if part.columns == 1 and part.outer < FEW else 1
        if pieces > 1:
            yield Part(part.outer * pieces, part.rows // pieces, 1)
            yield Part(part.outer, pieces, 1)
        else:
            yield part


def _pieces(rows: int) -> int:
    """Into how many pieces of one length a row is cut; one if it is short, or has no divisor."""
    if rows < WORTH_A_THREAD:
        return 1
    return next((count for count in range(FEW, 1, -1) if rows % count == 0), 1)


def _between(build: Builder, size: int) -> Tensor:
    """Memory for what one part leaves to the next."""
    return build.memory.new(f"{build.current.name}{SCRATCH}", (size,), Descriptor.plain((size,)))


def _kernel(function: str, dtype: str, result: str, part: Part) -> Kernel | None:
    """None where there is no kernel, or one of the library is faster."""
    outer, rows, columns = part
    if not rows:
        return None
    if columns == 1:
        if function not in rows_kernels.REDUCED:
            return None
        return rows_kernels.reduction(function, dtype, result, outer, rows)
    floats = dtype == result == "float32"
    if not floats or function not in columns_kernels.REDUCED or rows < 2:
        return None
    return columns_kernels.reduction(function, outer, rows, columns)


def _as_it_lies(build: Builder, arguments: Reduce) -> Reduction | None:
    """The value in the order of its axes in memory, of which one in blocks is two, or row-major if
    its last block is not full; None if it has gaps, or if such an axis is not one in the result."""
    x, axes = build.values.tensor(arguments.x), arguments.axes
    several = math.prod(x.shape[axis] for axis in axes) > 1
    if x.descriptor is not None and x.descriptor.blocks and not fits(x.descriptor) and several:
        x = build.values.plain(arguments.x)
    if not _is_dense(x):
        return None
    strides = row_major(x.shape) if x.descriptor is None else x.descriptor.strides
    blocks = dict(() if x.descriptor is None else x.descriptor.blocks)
    order = sorted(range(len(x.shape)), key=lambda axis: (-strides[axis], axis))
    stored = [(axis, x.shape[axis] // blocks.get(axis, 1)) for axis in order] + [*blocks.items()]
    parts = _parts([size for _, size in stored], [axis in axes for axis, _ in stored])
    kept, step = dict.fromkeys(axes, 1), 1
    for axis, size in reversed(stored):
        if axis in axes:
            continue
        if axis in kept and step != kept[axis] * blocks[axis]:
            return None
        kept.setdefault(axis, step)
        step *= size
    wanted = [axis for axis in range(len(x.shape)) if arguments.keep or axis not in axes]
    return Reduction(x, parts, tuple(kept[axis] for axis in wanted)) if parts else None


def _is_dense(x: Tensor) -> bool:
    """True if no memory lies between the elements."""
    if x.descriptor is None:
        return True
    if x.descriptor.blocks:
        return fits(x.descriptor) and x.descriptor.bytes == math.prod(x.shape) * ITEM_BYTES
    return x.descriptor == dense(x.shape, x.descriptor.strides)


def _parts(sizes: list[int], reduced: list[bool]) -> tuple[Part, ...]:
    """The runs of reduced axes, the last one first; each is gone for the next."""
    found: list[Part] = []
    while any(reduced):
        last = len(reduced) - reduced[::-1].index(True)
        first = last - 1
        while first and reduced[first - 1]:
            first -= 1
        run = sizes[first:last]
        found.append(Part(math.prod(sizes[:first]), math.prod(run), math.prod(sizes[last:])))
        del sizes[first:last], reduced[first:last]
    return tuple(found)


def _with_numpy(build: Builder, arguments: Reduce) -> None:
    function, axes, keep = UFUNCS[arguments.function], arguments.axes, arguments.keep

    def run(x: Any, y: Any) -> None:
        y[...] = function.reduce(x, axis=axes, keepdims=keep)

    of_arrays(build, run, arguments.x)


def _refuse(arguments: Reduce, question: Question) -> str:
    return refuse_integers(arguments, question) if arguments.function == "mean" else ""


IMPLEMENTATIONS = (Implementation(Reduce, reduce, _refuse),)

"""Rows by their indices, and adding to rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import integers
from golow.levels.direct.cudnn.shared_kernels.elements import Lookup, elements
from golow.levels.direct.cudnn.shared_kernels.geometry import MOST_PARTS, VECTOR, channel_vector
from golow.levels.direct.cudnn.steps.built_plan import Tensor, is_aligned
from golow.levels.direct.cudnn.steps.strided_copies import look_up, new_rows, whole
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.kernel_views import View
from golow.levels.direct.refusing import not_floating
from golow.levels.direct.split_axes import Part, joined
from golow.lower.operators.take import AddRows, Take, TakeBackward

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")
COLUMNS = 128  # most threads of a block that adds
CHUNK = 64  # places whose gradients one thread adds, one after the other
# Up to this many places, each is compared with each row by the thread that writes it, if these are
# not too many comparisons: by their number, a few microseconds of a large GPU.
FEW, MOST_COMPARED, COLLECTING = 256, 1 << 26, 256
VECTOR_BYTES = 16
ORDERING, LANES = 256, 8  # threads of a block that sorts, and how many of them count for one place


def take(build: Builder, arguments: Take) -> None:
    """A copy of these rows, where they will be joined if they will; of numbers in the type of the
    table."""
    axis = arguments.axis
    x, index = build.values.rows(arguments.x), build.values.view(arguments.index)
    output = build.current.output()
    there = build.concatenations.tensor(output.name, output.shape, Layout(x.dtype))
    result = new_rows(build, x.dtype) if there is None or there.dtype != x.dtype else there
    rank = len(index.shape)
    strides = x.layout.strides(x.shape)
    outer, inner = strides[:axis], strides[axis + 1 :]
    table = View(x.dtype, (*outer, *[0] * rank, *inner))
    own = index.layout.strides(index.shape)
    places = View(index.dtype, (*[0] * axis, *own, *[0] * len(inner)))
    lookup = Lookup(0, x.shape[axis], strides[axis])
    seen = whole(result)
    look_up(build, [(index, places)], (x, table), [lookup], (result, seen), result.shape)
    build.values.define(0, result)


def take_backward(build: Builder, arguments: TakeBackward) -> None:
    """Zeros, in the type of the parameter's gradient, to which the rows are added."""
    place = build.training.place()
    result = build.values.result(0, Layout("float32" if place is None else place.dtype))
    if not _collect(build, result, arguments):
        zero = elements("0.0f", [], View(result.dtype, (1,)), (result.elements,))
        build.steps.kernel(zero, [], [result], "zero")
        _add(build, result, arguments)
    build.values.define(0, result)


def _collect(build: Builder, result: Tensor, arguments: TakeBackward) -> bool:
    """Make all rows of the gradient in one launch, if there are few places; return whether."""
    rows, axis = _rows(build, result, arguments), arguments.axis
    gradient, index = build.values.view(arguments.gradient), build.values.view(arguments.index)
    rank = len(index.shape)
    steps = gradient.layout.strides(gradient.shape)
    sizes = gradient.shape
    outer = _one_step(sizes[:axis], steps[:axis])
    place = _one_step(sizes[axis : axis + rank], steps[axis : axis + rank])
    inner = _one_step(sizes[axis + rank :], steps[axis + rank :])
    own = _one_step(index.shape, index.layout.strides(index.shape))
    side_by_side = rows.inner == 1 or inner == 1  # a repeated element's neighbours are at step 0
    if outer is None or place is None or own is None or not side_by_side:
        gradient, index = build.values.rows(arguments.gradient), build.values.rows(arguments.index)
        outer, place, own = rows.places * rows.inner, rows.inner, 1
    vector = min(channel_vector(t.dtype, rows.inner) for t in (gradient, result))
    fits = not (gradient.offset % VECTOR_BYTES or result.offset % VECTOR_BYTES)
    vector = math.gcd(vector, outer, place) if fits else 1
    if not rows.are_few(vector):
        return False
    kernel = collect_kernel(
        (gradient.dtype, index.dtype, result.dtype), rows, vector, (outer, place, own)
    )
    build.steps.kernel(kernel, [gradient, index], [result])
    return True


def _one_step(sizes: Sequence[int], steps: Sequence[int]) -> int | None:
    """The distance of neighbours along axes that are one in memory; None if they are not."""
    axis = joined(Part(n, step) for n, step in zip(sizes, steps, strict=True) if n != 1)
    if len(axis) > 1:
        return None
    return axis[0].step if axis else 0


def add_to_rows(build: Builder, arguments: AddRows) -> None:
    """In place where nothing else reads x, or if it is stored where the sum is wanted."""
    x, place = build.values.view(arguments.x), build.training.place()
    at_place = place is not None and place.buffer == x.buffer
    in_order = x.layout.order == "rows" and is_aligned(x)
    if not (in_order and (at_place or build.values.dies(arguments.x))):
        given, x = x, build.values.result(0, Layout(x.dtype if place is None else place.dtype))
        build.values.copy(given, x)
    _add(build, x, arguments)
    build.values.define(0, x)


def _add(build: Builder, result: Tensor, arguments: TakeBackward | AddRows) -> None:
    """Add the rows that occur, each the sum of its gradients."""
    gradient, index = build.values.rows(arguments.gradient), build.values.rows(arguments.index)
    rows = _rows(build, result, arguments)
    order = build.memory.scratch(rows.places, "int32")
    build.steps.kernel(order_kernel(index.dtype, rows.places), [index], [order], "order")
    partial = build.memory.scratch(rows.partial)
    kernel = sum_kernel((gradient.dtype, index.dtype, result.dtype), rows)
    build.steps.kernel(kernel, [gradient, index, order], [result, partial])
    if rows.chunks > 1:
        kernel = join_kernel((index.dtype, result.dtype), rows)
        build.steps.kernel(kernel, [index, order, partial], [result])


def _rows(build: Builder, result: Tensor, arguments: TakeBackward | AddRows) -> Rows:
    axis, shape = arguments.axis, result.shape
    return Rows(
        places=math.prod(build.current.value(arguments.index).shape),
        outer=math.prod(shape[:axis]),
        inner=math.prod(shape[axis + 1 :]),
        size=shape[axis],
        skipped=arguments.skipped,
    )


def _refuse_backward(arguments: TakeBackward | AddRows, question: Question) -> str:
    return not_floating(question, arguments.gradient)


# ---------------------------------------------------------------- kernels


class Rows(NamedTuple):
    """Gradients [outer, places, inner] of rows that are added to [outer, size, inner]."""

    places: int
    outer: int
    inner: int
    size: int
    skipped: int = -1

    @property
    def chunks(self) -> int:
        """Blocks that share the gradients of one of ``outer``."""
        return -(-self.places // CHUNK)

    def are_few(self, vector: int) -> bool:
        """True if a thread for each ``vector`` columns of a row may compare all places with it."""
        compared = self.places * self.outer * self.size * (self.inner // vector)
        fits = self.places <= FEW and self.outer <= MOST_PARTS
        return fits and compared <= MOST_COMPARED

    @property
    def partial(self) -> int:
        """Sums of parts of rows: two a chunk."""
        return 2 * self.chunks * self.outer * self.inner

    @property
    def scalars(self) -> tuple[np.generic, ...]:
        """Scalar arguments of both kernels."""
        own = np.int32(self.places), np.int32(self.inner)
        return (*own, np.int64(self.size), np.int64(self.skipped))

    @property
    def threads(self) -> int:
        """Threads of a block: one per column, a multiple of a warp."""
        return min(COLUMNS, -(-self.inner // 32) * 32)

    @property
    def grid(self) -> tuple[int, int, int]:
        """Chunks, groups of columns, and ``outer``."""
        return self.chunks, -(-self.inner // self.threads), self.outer


def order_kernel(index: str, count: int) -> Kernel:
    """Pointers: index [count] -> order [count] (int32): the places by their row, equal ones in the
    order of places. Each is compared with each, so the time grows with the square of their
    number."""
    blocks = -(-count * LANES // ORDERING)
    expression = f"order_rows<{C_TYPES[index]}, {ORDERING}, {LANES}>"
    grid, block = (blocks, 1, 1), (ORDERING, 1, 1)
    return Kernel(FILE, expression, grid, block, (np.int32(count),), code=VECTOR)


def sum_kernel(dtypes: tuple[str, str, str], rows: Rows) -> Kernel:
    """Pointers: gradient [outer, places, inner], index and order [places] -> y [outer, size,
    inner], to whose rows is added; partial [outer, 2 chunks, inner] (float32). dtypes: of gradient,
    index and y."""
    expression = f"sum_chunks<{', '.join(C_TYPES[dtype] for dtype in dtypes)}, {CHUNK}>"
    return Kernel(FILE, expression, rows.grid, (rows.threads, 1, 1), rows.scalars, code=VECTOR)


def collect_kernel(
    dtypes: tuple[str, str, str], rows: Rows, vector: int, steps: tuple[int, int, int]
) -> Kernel:
    """Pointers: gradient [outer, places, inner], index [places] -> y [outer, size, inner], of which
    every element is written. dtypes: of gradient, index and y; steps: elements from one of
    ``outer``, from one place and from one index to the next."""
    types = ", ".join(C_TYPES[dtype] for dtype in dtypes)
    threads = rows.size * (rows.inner // vector)
    sizes = integers(rows.places, rows.inner, rows.size)
    scalars = (*sizes, np.int64(rows.skipped), *(np.int64(step) for step in steps))
    grid = (-(-threads // COLLECTING), rows.outer, 1)
    expression = f"collect_rows<{types}, {vector}, {FEW}>"
    return Kernel(FILE, expression, grid, (COLLECTING, 1, 1), scalars, code=VECTOR)


def join_kernel(dtypes: tuple[str, str], rows: Rows) -> Kernel:
    """Pointers: index and order [places], partial [outer, 2 chunks, inner] -> y [outer, size,
    inner], to whose rows is added. dtypes: of index and y."""
    expression = f"join_chunks<{', '.join(C_TYPES[dtype] for dtype in dtypes)}, {CHUNK}>"
    return Kernel(FILE, expression, rows.grid, (rows.threads, 1, 1), rows.scalars, code=VECTOR)


IMPLEMENTATIONS = (
    Implementation(Take, take),
    Implementation(TakeBackward, take_backward, _refuse_backward),
    Implementation(AddRows, add_to_rows, _refuse_backward),
)

"""Rows by their indices, and adding to rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from golow.levels.vendor.cudnn.gathering import new_rows, whole
from golow.levels.vendor.cudnn.kernels import C_TYPES, Kernel
from golow.levels.vendor.cudnn.kernels.elements import Lookup, elements
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.cudnn.steps import Tensor, is_aligned
from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.refusing import not_floating
from golow.levels.vendor.views import View
from golow.lower.operators.take import AddRows, Take, TakeBackward

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder

FILE = Path(__file__).with_suffix(".cu")
COLUMNS = 128  # most threads of a block that adds
CHUNK = 64  # places whose gradients one thread adds, one after the other
ORDERING, LANES = 256, 8  # threads of a block that sorts, and how many of them count for one place


def take(build: Builder, arguments: Take) -> None:
    """A copy of these rows; of numbers in the type of the table."""
    axis = arguments.axis
    x, index = build.rows(arguments.x), build.rows(arguments.index)
    result = new_rows(build, x.dtype)
    rank = len(index.shape)
    strides = x.layout.strides(x.shape)
    outer, inner = strides[:axis], strides[axis + 1 :]
    table = View(x.dtype, (*outer, *[0] * rank, *inner))
    own = index.layout.strides(index.shape)
    places = View(index.dtype, (*[0] * axis, *own, *[0] * len(inner)))
    lookup = Lookup(0, x.shape[axis], strides[axis])
    kernel = elements("t", [places], whole(result), result.shape, _kind(x.dtype), table, [lookup])
    build.kernel(kernel, [index, x], [result])
    build.define(0, result)


def _kind(dtype: str) -> str:
    # Indices are read in the same type: above 2^24 a float32 would not hold them.
    return "int64" if dtype in ("int64", "int32", "uint8", "bool") else "mixed"


def take_backward(build: Builder, arguments: TakeBackward) -> None:
    """Zeros, in the type of the parameter's gradient, to which the rows are added."""
    place = build.place()
    result = build.result(0, Layout("float32" if place is None else place.dtype))
    zero = elements("0.0f", [], View(result.dtype, (1,)), (result.elements,))
    build.kernel(zero, [], [result], "zero")
    _add(build, result, arguments)
    build.define(0, result)


def add_to_rows(build: Builder, arguments: AddRows) -> None:
    """In place where nothing else reads x, or where it lies is where the sum is wanted."""
    x, place = build.view(arguments.x), build.place()
    at_place = place is not None and place.buffer == x.buffer
    in_order = x.layout.order == "rows" and is_aligned(x)
    if not (in_order and (at_place or build.dies(arguments.x))):
        given, x = x, build.result(0, Layout(x.dtype if place is None else place.dtype))
        build.copy(given, x)
    _add(build, x, arguments)
    build.define(0, x)


def _add(build: Builder, result: Tensor, arguments: TakeBackward | AddRows) -> None:
    """Add the rows that occur, each the sum of its gradients."""
    gradient, index = build.rows(arguments.gradient), build.rows(arguments.index)
    axis, shape = arguments.axis, result.shape
    rows = Rows(
        places=math.prod(index.shape),
        outer=math.prod(shape[:axis]),
        inner=math.prod(shape[axis + 1 :]),
        size=shape[axis],
        skipped=arguments.skipped,
    )
    order = build.scratch(rows.places, "int32")
    build.kernel(order_kernel(index.dtype, rows.places), [index], [order], "order")
    partial = build.scratch(rows.partial)
    kernel = sum_kernel((gradient.dtype, index.dtype, result.dtype), rows)
    build.kernel(kernel, [gradient, index, order], [result, partial])
    if rows.chunks > 1:
        kernel = join_kernel((index.dtype, result.dtype), rows)
        build.kernel(kernel, [index, order, partial], [result])


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

    @property
    def partial(self) -> int:
        """Sums of parts of rows: two a chunk."""
        return 2 * self.chunks * self.outer * self.inner

    @property
    def scalars(self) -> tuple[np.generic, ...]:
        """What both kernels are told."""
        own = np.int32(self.places), np.int32(self.inner)
        return (*own, np.int64(self.size), np.int64(self.skipped))

    @property
    def threads(self) -> int:
        """Of a block: one a column, a multiple of a warp."""
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
    return Kernel(FILE, expression, (blocks, 1, 1), (ORDERING, 1, 1), (np.int32(count),))


def sum_kernel(dtypes: tuple[str, str, str], rows: Rows) -> Kernel:
    """Pointers: gradient [outer, places, inner], index and order [places] -> y [outer, size,
    inner], to whose rows is added; partial [outer, 2 chunks, inner] (float32). dtypes: of gradient,
    index and y."""
    expression = f"sum_chunks<{', '.join(C_TYPES[dtype] for dtype in dtypes)}, {CHUNK}>"
    return Kernel(FILE, expression, rows.grid, (rows.threads, 1, 1), rows.scalars)


def join_kernel(dtypes: tuple[str, str], rows: Rows) -> Kernel:
    """Pointers: index and order [places], partial [outer, 2 chunks, inner] -> y [outer, size,
    inner], to whose rows is added. dtypes: of index and y."""
    expression = f"join_chunks<{', '.join(C_TYPES[dtype] for dtype in dtypes)}, {CHUNK}>"
    return Kernel(FILE, expression, rows.grid, (rows.threads, 1, 1), rows.scalars)


IMPLEMENTATIONS = (
    Implementation(Take, take),
    Implementation(TakeBackward, take_backward, _refuse_backward),
    Implementation(AddRows, add_to_rows, _refuse_backward),
)

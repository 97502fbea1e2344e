"""Rows by their indices, and adding to rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.vendor.cudnn.gathering import new_rows, whole
from golow.levels.vendor.cudnn.kernels import C_TYPES, ITEM_BYTES, Kernel
from golow.levels.vendor.cudnn.kernels.blocks import ceiling, power_of_two
from golow.levels.vendor.cudnn.kernels.elements import Lookup, elements
from golow.levels.vendor.cudnn.kernels.geometry import VECTOR, require_positive
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.cudnn.steps import Tensor, is_aligned
from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.refusing import not_floating
from golow.levels.vendor.views import View
from golow.lower.operators.take import AddRows, Take, TakeBackward

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder

FILE = Path(__file__).with_suffix(".cu")
LEAST_THREADS, MOST_THREADS = 128, 512  # of a block that looks through all indices


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
    sizes = (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
    types = (gradient.dtype, index.dtype, result.dtype)
    kernel = rows_kernel(types, math.prod(index.shape), sizes, arguments.skipped)
    build.kernel(kernel, [gradient, index], [result])


def _refuse_backward(arguments: TakeBackward | AddRows, question: Question) -> str:
    return not_floating(question, arguments.gradient)


# ---------------------------------------------------------------- the kernel


def rows_kernel(
    dtypes: tuple[str, str, str], count: int, sizes: tuple[int, int, int], skipped: int = -1
) -> Kernel:
    """Pointers: gradient [outer, count, inner], index [count] -> y [outer, size, inner], to whose
    rows it is added. dtypes: of these; sizes: outer, size, inner. skipped: an index that gets none.
    """
    outer, size, inner = sizes
    require_positive(outer=outer, count=count, size=size, inner=inner)
    width = math.gcd(inner, 16 // ITEM_BYTES[dtypes[0]])
    threads = min(max(LEAST_THREADS, power_of_two(count)), MOST_THREADS)
    tiles = ceiling(inner // width, threads)
    vectors = ceiling(inner // width, tiles)
    types = ", ".join(C_TYPES[dtype] for dtype in dtypes)
    return Kernel(
        FILE,
        f"add_rows<{types}, {threads}, {width}>",
        (count, outer, tiles),
        (threads, 1, 1),
        (
            *(np.int32(count), np.int64(inner), np.int64(size)),
            *(np.int32(vectors), np.int64(skipped)),
        ),
        code=VECTOR,
    )


IMPLEMENTATIONS = (
    Implementation(Take, take),
    Implementation(TakeBackward, take_backward, _refuse_backward),
    Implementation(AddRows, add_to_rows, _refuse_backward),
)

"""Rows by their indices, and adding to rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.vendor.cudnn.gathering import new_rows, whole
from golow.levels.vendor.cudnn.kernels import C_TYPES, Kernel
from golow.levels.vendor.cudnn.kernels.elements import Lookup, elements
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.refusing import not_floating
from golow.levels.vendor.views import View
from golow.lower.operators.take import Take, TakeBackward

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder

FILE = Path(__file__).with_suffix(".cu")
THREADS = 128


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
    """Zeros, then for each row that occurs the sum of its gradients in their order."""
    axis = arguments.axis
    gradient, index = build.rows(arguments.gradient), build.rows(arguments.index)
    count = math.prod(index.shape)
    outer = math.prod(gradient.shape[:axis])
    inner = math.prod(gradient.shape[axis + len(index.shape) :])
    result = build.result(0, Layout("float32"))
    zero = elements("0.0f", [], View("float32", (1,)), (result.elements,))
    build.kernel(zero, [], [result], "zero")
    kernel = Kernel(
        FILE,
        f"add_rows<{C_TYPES[gradient.dtype]}, {C_TYPES[index.dtype]}>",
        (count, outer, 1),
        (THREADS, 1, 1),
        (
            np.int64(count),
            np.int64(inner),
            np.int64(arguments.size),
            np.int64(arguments.skipped),
        ),
    )
    build.kernel(kernel, [gradient, index], [result])
    build.define(0, result)


def _refuse_backward(arguments: TakeBackward, question: Question) -> str:
    return not_floating(question, arguments.gradient)


IMPLEMENTATIONS = (
    Implementation(Take, take),
    Implementation(TakeBackward, take_backward, _refuse_backward),
)

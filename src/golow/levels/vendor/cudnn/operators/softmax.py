"""softmax, log softmax and their gradients, in float32 for any precision."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.vendor.cudnn.kernels import C_TYPES, Kernel
from golow.levels.vendor.cudnn.kernels.geometry import require_floating, require_positive
from golow.levels.vendor.cudnn.kernels.rows import ROWS, threads_for
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.cudnn.steps import Tensor
from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.graph import Ref
from golow.lower.operators.softmax import Softmax, SoftmaxBackward

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder

FILE = Path(__file__).with_suffix(".cu")


def softmax(build: Builder, arguments: Softmax) -> None:
    """Over an axis whose elements are contiguous in memory."""
    x, rows, columns = _lines(build, arguments.x, arguments.axis)
    result = build.new(build.output().name, x.shape, x.layout._replace(dtype="float32"))
    build.kernel(forward_kernel(x.dtype, rows, columns, arguments.log), [x], [result])
    build.define(0, result)


def softmax_backward(build: Builder, arguments: SoftmaxBackward) -> None:
    """The gradient of the argument, in the type of activations."""
    y, rows, columns = _lines(build, arguments.result, arguments.axis)
    outer = build.wanted(arguments.gradient, y.layout)
    layout = y.layout._replace(dtype=build.types.computed)
    result = build.new(build.output().name, y.shape, layout)
    kernel = backward_kernel(result.dtype, rows, columns, arguments.log)
    build.kernel(kernel, [outer, y], [result])
    build.define(0, result)


def _lines(build: Builder, reference: Ref, axis: int) -> tuple[Tensor, int, int]:
    """Return the tensor with the axis innermost in memory, the number of lines and their length."""
    shape, dtype = build.value(reference).shape, build.tensor(reference).dtype
    layout = Layout(dtype)
    if _is_of_channels(shape, axis):
        layout = Layout(dtype, "channels_last", shape[1])
    return build.wanted(reference, layout), math.prod(shape) // shape[axis], shape[axis]


def _is_of_channels(shape: tuple[int, ...], axis: int) -> bool:
    return len(shape) == 4 and axis == 1


def _refuse(arguments: Softmax | SoftmaxBackward, question: Question) -> str:
    output, axis = question.output(), arguments.axis
    shape = () if output is None else output.shape
    if not _is_of_channels(shape, axis) and axis != len(shape) - 1:
        return f"{question.node.op} over an axis in the middle"
    return refuse_integers(arguments, question)


# ---------------------------------------------------------------- kernels


def forward_kernel(source: str, rows: int, columns: int, logarithm: bool) -> Kernel:
    """Pointers: x [rows, columns] of ``source`` -> y of float32; ``logarithm``: log softmax."""
    return _of_rows("softmax", source, rows, columns, logarithm)


def backward_kernel(dtype: str, rows: int, columns: int, logarithm: bool) -> Kernel:
    """Pointers: gradient and result [rows, columns] (float32) -> dx of ``dtype``."""
    return _of_rows("softmax_backward", dtype, rows, columns, logarithm)


def _of_rows(name: str, dtype: str, rows: int, columns: int, logarithm: bool) -> Kernel:
    require_floating(dtype=dtype)
    require_positive(rows=rows, columns=columns)
    threads = threads_for(columns)
    expression = f"{name}<{C_TYPES[dtype]}, {threads}, {str(logarithm).lower()}>"
    scalars = (np.int32(columns),)
    return Kernel(FILE, expression, (rows, 1, 1), (threads, 1, 1), scalars, code=ROWS)


IMPLEMENTATIONS = (
    Implementation(Softmax, softmax, _refuse),
    Implementation(SoftmaxBackward, softmax_backward, _refuse),
)

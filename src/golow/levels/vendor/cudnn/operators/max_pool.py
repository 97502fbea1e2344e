"""The largest of each window of an image, and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from golow.levels.vendor.cudnn.kernels import pooling
from golow.levels.vendor.cudnn.kernels.pooling import Images, Window
from golow.levels.vendor.cudnn.refusing import (
    beyond_kernel,
    not_floating,
    not_made_by,
    read_by_others,
)
from golow.levels.vendor.cudnn.steps import Tensor
from golow.levels.vendor.implementation import Implementation, Question
from golow.lower.operators.max_pool import MaxPool, MaxPoolBackward

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


class Taps(NamedTuple):
    """In place of the indices: which pixel of its window was the largest, a byte each."""

    tensor: Tensor


def max_pool(build: Builder, arguments: MaxPool) -> None:
    """The largest of each window; in training also where it was."""
    source = build.image(arguments.x)
    result = build.new(build.output().name, build.output().shape, source.layout)
    taps = arguments.indices and build.is_read(1)
    writes = [result]
    if taps:
        layout = source.layout._replace(dtype="uint8")
        writes.append(build.new(build.output(1).name, result.shape, layout))
        build.note(build.output(1).name, Taps(writes[1]))
    sizes = Images.between(source.shape, result.shape)
    kernel = pooling.max_pool(source.dtype, sizes, _window(arguments), taps)
    build.kernel(kernel, [source], writes)
    build.define(0, result)


def max_pool_backward(build: Builder, arguments: MaxPoolBackward) -> None:
    """The gradient goes to where the largest was."""
    outer, shape = build.image(arguments.gradient), build.value(arguments.x).shape
    result = build.new(build.output().name, shape, outer.layout)
    sizes = Images.between(shape, outer.shape)
    kernel = pooling.max_pool_backward(outer.dtype, sizes, _window(arguments))
    taps = build.noted(arguments.indices, Taps).tensor
    build.kernel(kernel, [outer, taps], [result])
    build.define(0, result)


def _window(arguments: MaxPool | MaxPoolBackward) -> Window:
    return Window(arguments.kernel, arguments.stride, arguments.padding, arguments.dilation)


def _refuse(arguments: MaxPool, question: Question) -> str:
    output, shape = question.output(), question.value(arguments.x).shape
    if output is None:
        return f"{question.node.op} of which only the indices are read"
    if arguments.indices and (other := read_by_others(question, 1, MaxPoolBackward)):
        return other
    sizes = Images.between(shape, output.shape)
    return not_floating(question, arguments.x) or beyond_kernel(
        question, lambda: pooling.max_pool("float32", sizes, _window(arguments), arguments.indices)
    )


def _refuse_backward(arguments: MaxPoolBackward, question: Question) -> str:
    return not_made_by(question, arguments.indices, MaxPool)


IMPLEMENTATIONS = (
    Implementation(MaxPool, max_pool, _refuse),
    Implementation(MaxPoolBackward, max_pool_backward, _refuse_backward),
)

"""Average pooling of an image, and its gradient."""

from __future__ import annotations

from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.onednn import pooling
from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.constants import POOLING_AVERAGE, POOLING_AVERAGE_EXCLUDING
from golow.levels.vendor.onednn.pooling import Window, window
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.operators.average_pool import AveragePool, AveragePoolBackward


def average_pool(build: Builder, arguments: AveragePool) -> None:
    """The mean of each window."""
    x, shape = build.tensor(arguments.x), build.output().shape
    result = pooling.forward(build, x, shape, _window(arguments, x.shape, shape))
    build.define(0, result.tensor)


def average_pool_backward(build: Builder, arguments: AveragePoolBackward) -> None:
    """Spread each gradient evenly over its window."""
    x, outer = build.tensor(arguments.x), build.value(arguments.gradient).shape
    spread = _window(arguments, x.shape, outer)
    pooling.backward(build, arguments.gradient, x.shape, x.layout, spread, None)


def _window(
    arguments: AveragePool | AveragePoolBackward, source: tuple[int, ...], target: tuple[int, ...]
) -> Window:
    """Without padding, what ceil adds beyond the image does not count: it is excluded."""
    counts = arguments.with_padding and any(arguments.padding)
    algorithm = POOLING_AVERAGE if counts else POOLING_AVERAGE_EXCLUDING
    kernel, stride, padding = arguments.kernel, arguments.stride, arguments.padding
    return window(algorithm, source, target, kernel, stride, padding)


def _refuse(arguments: AveragePool | AveragePoolBackward, question: Question) -> str:
    if arguments.divisor is not None:
        return f"{question.node.op} with divisor_override"
    if arguments.ceil and arguments.with_padding and any(arguments.padding):
        return f"{question.node.op} with padding, count_include_pad and ceil_mode"
    return refuse_integers(arguments, question)


IMPLEMENTATIONS = (
    Implementation(AveragePool, average_pool, _refuse),
    Implementation(AveragePoolBackward, average_pool_backward, _refuse),
)

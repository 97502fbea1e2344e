"""Max pooling of an image, and its gradient."""

from __future__ import annotations

from typing import NamedTuple

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.constants import POOLING_MAX
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps import pooling
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.pooling import Window, window
from golow.levels.direct.refusing import not_floating, not_made_by, read_by_others
from golow.lower.operators.max_pool import MaxPool, MaxPoolBackward
from golow.lower.operators.quantize import RANGES


class Largest(NamedTuple):
    """Workspace that forward saves for backward instead of the indices: oneDNN's own record of
    where each maximum was."""

    mask: Tensor


def max_pool(build: Builder, arguments: MaxPool) -> None:
    """Define the maximum of each window; in training, also save its position."""
    read = 0 if build.current.is_read(0) else 1  # a backward pass may want the positions alone
    x, shape = build.values.tensor(arguments.x), build.current.output(read).shape
    result = pooling.forward(build, x, shape, _window(arguments, x.shape, shape))
    if read == 0:
        build.values.define(0, result.tensor)
    if result.mask is not None and arguments.indices:
        build.current.note(build.current.output_name(1), Largest(result.mask))


def max_pool_backward(build: Builder, arguments: MaxPoolBackward) -> None:
    """Add each gradient at the position of its maximum."""
    x, outer = build.values.tensor(arguments.x), build.current.value(arguments.gradient).shape
    chosen = _window(arguments, x.shape, outer)
    largest = build.current.noted(arguments.indices, Largest)
    pooling.backward(build, arguments.gradient, x.shape, x.layout, chosen, largest.mask)


def _window(
    arguments: MaxPool | MaxPoolBackward, source: tuple[int, ...], target: tuple[int, ...]
) -> Window:
    kernel, stride, padding = arguments.kernel, arguments.stride, arguments.padding
    return window(POOLING_MAX, source, target, kernel, stride, padding, arguments.dilation)


def _refuse(arguments: MaxPool, question: Question) -> str:
    others = read_by_others(question, 1, MaxPoolBackward) if arguments.indices else ""
    whole = question.value(arguments.x).dtype in RANGES and not arguments.indices
    return others or ("" if whole else not_floating(question, arguments.x))


def _refuse_backward(arguments: MaxPoolBackward, question: Question) -> str:
    floating = not_floating(question, arguments.gradient, arguments.x)
    return floating or not_made_by(question, arguments.indices, MaxPool)


IMPLEMENTATIONS = (
    Implementation(MaxPool, max_pool, _refuse),
    Implementation(MaxPoolBackward, max_pool_backward, _refuse_backward),
)

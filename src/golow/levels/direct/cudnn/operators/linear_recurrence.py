"""Linear recurrences and their gradients, a thread for each line, on views of any strides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.build.refusing import beyond_kernel
from golow.levels.direct.cudnn.problems.layouts import Layout, dense, fills_memory
from golow.levels.direct.cudnn.shared_kernels import linear_recurrence as kernels
from golow.levels.direct.cudnn.steps.built_plan import Tensor, aligned
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.kernel_views import View
from golow.lower.operators.linear_recurrence import LinearRecurrence, LinearRecurrenceBackward

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def linear_recurrence(build: Builder, arguments: LinearRecurrence) -> None:
    """The states are stored in the order of x, in the wider type of both arguments: a state that is
    rounded in each step would drift."""
    decay, x = build.values.view(arguments.decay), build.values.view(arguments.x)
    result = build.values.result(0, _layout(x, _wider(decay, x)))
    seen, views = _seen([decay, x, result])
    kernel = kernels.forward(views[0], views[1], views[2], result.shape, arguments.axis)
    build.steps.kernel(kernel, seen[:2], seen[2:])
    build.values.define(0, result)


def linear_recurrence_backward(build: Builder, arguments: LinearRecurrenceBackward) -> None:
    """Both gradients are stored in the order of the states and in their type."""
    read = [
        build.values.view(item) for item in (arguments.gradient, arguments.decay, arguments.states)
    ]
    layout = _layout(read[2], read[2].dtype)
    made = [
        build.memory.new(f"{build.current.name}.{index}", read[2].shape, layout)
        for index in range(2)
    ]
    seen, views = _seen([*read, *made])
    kernel = kernels.backward(views[0], views[1], views[2], views[3], read[2].shape, arguments.axis)
    build.steps.kernel(kernel, seen[:3], seen[3:])
    for index, tensor in enumerate(made):
        build.values.define(index, tensor)


def _seen(tensors: list[Tensor]) -> tuple[list[Tensor], list[View]]:
    """The tensors from aligned addresses on, and how each is seen from there."""
    places = [aligned(tensor) for tensor in tensors]
    views = [
        View(tensor.dtype, tensor.layout.strides(tensor.shape), start)
        for tensor, (_, start) in zip(tensors, places, strict=True)
    ]
    return [base for base, _ in places], views


def _layout(like: Tensor, dtype: str) -> Layout:
    """The order of a tensor without its gaps."""
    filled = fills_memory(like.layout, like.shape)
    layout = like.layout if filled else dense(like.layout, like.shape)
    return layout._replace(dtype=dtype)


def _wider(one: Tensor, other: Tensor) -> str:
    return one.dtype if one.dtype == other.dtype else "float32"


def _refuse(arguments: LinearRecurrence | LinearRecurrenceBackward, question: Question) -> str:
    value = question.value(arguments.decay)
    view = View(value.dtype, Layout(value.dtype).strides(value.shape))
    return beyond_kernel(
        question, lambda: kernels.forward(view, view, view, value.shape, arguments.axis)
    )


IMPLEMENTATIONS = (
    Implementation(LinearRecurrence, linear_recurrence, _refuse),
    Implementation(LinearRecurrenceBackward, linear_recurrence_backward, _refuse),
)

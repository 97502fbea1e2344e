"""Steps that copy tensors, or compute from their elements, as strides say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.cudnn.problems.layouts import Layout, same_memory
from golow.levels.direct.cudnn.shared_kernels.copies import strided_copy
from golow.levels.direct.cudnn.shared_kernels.elements import Lookup
from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import Written, fused, input_name
from golow.levels.direct.cudnn.shared_kernels.joined_copies import MOST, Part, copies
from golow.levels.direct.cudnn.steps.built_plan import Tensor, aligned, is_aligned
from golow.levels.direct.cudnn.steps.split_axis_views import Folded
from golow.levels.direct.kernel_views import View
from golow.levels.direct.split_axes import Part as AxisPart

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def copy(
    build: Builder,
    source: Tensor,
    seen: View,
    target: Tensor,
    place: View,
    shape: Sequence[int],
    operation: str = "",
) -> None:
    """Copy between two tensors, both seen at the indices of a shape."""
    base, seen = _from_aligned(source, seen)
    there, place = _from_aligned(target, place)
    build.steps.kernel(strided_copy(seen, place, shape), [base], [there], operation)


class Copied(NamedTuple):
    """Source and destination of a copy, both seen at the indices of a shape."""

    source: Tensor
    seen: View
    target: Tensor
    place: View
    shape: tuple[int, ...]


def copy_all(build: Builder, copied: Sequence[Copied], operation: str = "") -> None:
    """Make several copies, with as few launches as it takes."""
    beside: list[tuple[Tensor, Tensor, Part]] = []
    for item in copied:
        base, seen = _from_aligned(item.source, item.seen)
        there, place = _from_aligned(item.target, item.place)
        part = Part(seen, place, item.shape)
        if part.joins and 0 not in item.shape:
            beside.append((base, there, part))
        else:
            build.steps.kernel(strided_copy(*part), [base], [there], operation)
    for first in range(0, len(beside), MOST):
        sources, targets, parts = zip(*beside[first : first + MOST], strict=True)
        kernel = strided_copy(*parts[0]) if len(parts) == 1 else copies(parts)
        build.steps.kernel(kernel, sources, targets, operation)


def _from_aligned(tensor: Tensor, seen: View) -> tuple[Tensor, View]:
    """The tensor from an aligned address on, and how it is seen from there."""
    base, start = aligned(tensor)
    return base, seen._replace(start=seen.start + start)


def look_up(
    build: Builder,
    places: Sequence[tuple[Tensor, View]],
    table: tuple[Tensor, View],
    lookups: Sequence[Lookup],
    target: tuple[Tensor, View],
    shape: Sequence[int],
) -> None:
    """Copy from a table's places, which integers move as lookups say; all are tensors and how they
    are seen at the indices of a shape."""
    *read, (base, written) = (_from_aligned(*item) for item in (*places, table, target))
    copied = Written(input_name(len(places)), written)
    kernel = fused((), [v for _, v in read], [copied], shape, tables={len(places): lookups})
    build.steps.kernel(kernel, [tensor for tensor, _ in read], [base])


def unfold(
    build: Builder, name: str, view: Folded, shape: Sequence[int], layout: Layout | None = None
) -> Tensor:
    """A copy of a view whose axes have several parts. layout: without padding; row-major in the
    view's own type by default."""
    result = build.memory.new(name, tuple(shape), layout or Layout(view.tensor.dtype))
    sizes = [part.size for part in view.parts]
    source = View(view.tensor.dtype, tuple(part.step for part in view.parts))
    steps = zip(view.axes, result.layout.strides(shape), strict=True)
    target = View(result.dtype, tuple(step for axis in steps for step in _steps_within(*axis)))
    copy(build, view.tensor, source, result, target, sizes, "reshape")
    return result


def _steps_within(parts: Sequence[AxisPart], step: int) -> Iterator[int]:
    """The steps of an axis's parts where the axis has one step."""
    for index in range(len(parts)):
        yield step * math.prod(part.size for part in parts[index + 1 :])


def gather(build: Builder, tensor: Tensor, strides: Sequence[int], start: int = 0) -> None:
    """Define the current node's value: a row-major copy, read with these strides."""
    result = new_rows(build, tensor.dtype)
    source = View(tensor.dtype, tuple(strides), start)
    copy(build, tensor, source, result, whole(result), result.shape)
    build.values.define(0, result)


def new_rows(build: Builder, dtype: str, index: int = 0) -> Tensor:
    """Row-major memory of this type for the current node's value of that index."""
    return build.values.result(index, Layout(dtype))


def whole(tensor: Tensor) -> View:
    """The tensor at its own indices."""
    return View(tensor.dtype, tensor.layout.strides(tensor.shape))


def repeated(tensor: Tensor, shape: Sequence[int]) -> View:
    """The tensor at the indices of a shape to which it broadcasts."""
    own = zip(tensor.shape, tensor.layout.strides(tensor.shape), strict=True)
    strides = [0 if size == 1 else stride for size, stride in own]
    return View(tensor.dtype, (*[0] * (len(shape) - len(strides)), *strides))


def axis_last(build: Builder, tensor: Tensor, axis: int) -> Tensor:
    """A row-major copy with an axis moved to the end; the tensor itself if that is its order."""
    return axes_last(build, tensor, (axis,))


def axes_last(build: Builder, tensor: Tensor, axes: Sequence[int]) -> Tensor:
    """The view with several axes moved to the end."""
    order = [*(i for i in range(len(tensor.shape)) if i not in axes), *axes]
    shape = tuple(tensor.shape[i] for i in order)
    strides = tensor.layout.strides(tensor.shape)
    turned = tuple(strides[i] for i in order)
    layout = Layout(tensor.dtype)
    seen = Layout(tensor.dtype, "strided", steps=turned)
    if same_memory(shape, seen, layout) and is_aligned(tensor):
        return tensor._replace(shape=shape, layout=layout)
    result = build.memory.new(f"{build.current.name}.turned", shape, layout)
    view = View(tensor.dtype, turned)
    copy(build, tensor, view, result, whole(result), shape, "turn")
    return result


def turned_back(result: Tensor, axis: int) -> View:
    """A result with an axis at the end, as the indices with the axis in its place see it."""
    strides = list(result.layout.strides(result.shape))
    strides.insert(axis, strides.pop())
    return View(result.dtype, tuple(strides))

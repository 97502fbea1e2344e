"""Copies of strided tensors by generated kernels, on all threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from golow.levels.direct.formulas.literals import number
from golow.levels.direct.kernel_views import View
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.kernels.elements import Statement, Written, elements, input_name
from golow.levels.direct.onednn.steps.array_steps import result
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.strided_views import seen

if TYPE_CHECKING:
    from golow.levels.direct.onednn.build.builder import Builder
    from golow.lower.ir.graph import Ref


def strided(build: Builder, reference: Ref) -> Tensor:
    """Return a value in a layout without blocks."""
    tensor = build.values.tensor(reference)
    blocked = tensor.descriptor is not None and tensor.descriptor.blocks
    return build.values.plain(reference) if blocked else tensor


def view_of(tensor: Tensor, shape: Sequence[int]) -> View:
    """Return a tensor without blocks at the indices of that shape, over which it repeats."""
    return seen(tensor, Descriptor.plain(shape)).view


def copied(build: Builder, source: Tensor, view: View) -> None:
    """Define the current node's value, row-major: these elements of the source."""
    target = result(build)
    if math.prod(target.shape):
        written = Written(input_name(0), view_of(target, target.shape))
        build.steps.kernel(elements([], [view], [written], target.shape), [source], [target])
    build.values.define(0, target)


def surrounded(
    build: Builder, source: Tensor, inside: Sequence[slice], outside: Sequence[slice], value: float
) -> None:
    """Define the current node's value, row-major: a number everywhere but in the box ``outside`` of
    the result, which gets the box ``inside`` of the source."""
    target = result(build)
    whole = view_of(target, target.shape)
    literal = number(value) if target.dtype == "float32" else str(int(value))
    if math.prod(target.shape):
        filled = [Statement("t0", target.dtype, literal)]
        # A step that read nothing would run once, while loading.
        first = View(source.dtype, (0,) * len(target.shape))
        kernel = elements(filled, [first], [Written("t0", whole)], target.shape)
        build.steps.kernel(kernel, [source], [target])
    shape = [box.stop - box.start for box in outside]
    if all(size > 0 for size in shape):
        given, made = part(view_of(source, source.shape), inside), part(whole, outside)
        kernel = elements([], [given], [Written(input_name(0), made)], shape)
        build.steps.kernel(kernel, [source], [target])
    build.values.define(0, target)


def part(view: View, boxes: Sequence[slice]) -> View:
    """Return the view of a box of the same memory; the slices have no steps."""
    moved = sum(box.start * step for box, step in zip(boxes, view.strides, strict=True))
    return view._replace(start=view.start + moved)

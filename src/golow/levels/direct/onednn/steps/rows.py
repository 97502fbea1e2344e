"""Values as rows: the last axis is contiguous, and the other axes count the rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.value_views import Folded, folded, shape_of
from golow.levels.direct.split_axes import Axis, Part, rows_in_memory

if TYPE_CHECKING:
    from golow.levels.direct.onednn.build.builder import Builder
    from golow.lower.ir.graph import Ref


class Rows(NamedTuple):
    """tensor: [rows, width], in the order in which they are in memory. outer: the leading axes of
    the value, with steps counted in rows. columns: the parts of the last axis, if its elements are
    in another order in memory."""

    tensor: Tensor
    outer: tuple[Axis, ...]
    columns: Axis = ()

    def result(self, tensor: Tensor) -> Folded:
        """A [rows, width] with a row for each of these, seen in the order of the value's axes."""
        width = tensor.shape[-1]
        outer = tuple(
            tuple(Part(part.size, part.step * width) for part in axis) for axis in self.outer
        )
        return Folded(tensor, (*outer, (Part(width, 1),) if width != 1 else ()))


def in_rows(build: Builder, reference: Ref) -> Rows:
    """Return a value as rows. In inference they stay in the order in which they are stored, such as
    that of a transposed batch, so that nothing is copied."""
    view = build.views.of(reference)
    if build.current.trains or not _one_after_the_other(view):
        view = folded(build.values.plain(reference))
    return as_rows(view)


def in_rows_of_any_order(build: Builder, reference: Ref) -> Rows:
    """Return a value as rows as `in_rows` does, but leave the elements of a row in the order in
    which they are stored, such as the channels of a flattened image in channels last."""
    view = build.views.of(reference)
    *outer, columns = view.axes
    in_order = Folded(view.tensor, (*outer, (Part(shape_of(view)[-1], 1),)))
    if len(columns) < 2 or not _covers_a_row(columns) or not _one_after_the_other(in_order):
        return in_rows(build, reference)
    return as_rows(in_order)._replace(columns=columns)


def as_rows(view: Folded) -> Rows:
    """A view whose rows follow one another in memory."""
    *leading, width = shape_of(view)
    shape = math.prod(leading), width
    tensor = view.tensor._replace(shape=shape, descriptor=Descriptor.plain(shape))
    outer = tuple(
        tuple(Part(part.size, part.step // width) for part in axis) for axis in view.axes[:-1]
    )
    return Rows(tensor, outer)


def _covers_a_row(parts: Axis) -> bool:
    """True if the parts together are adjacent elements, in any order."""
    step = 1
    for part in sorted(parts, key=lambda part: part.step):
        if part.step != step:
            return False
        step *= part.size
    return True


def _one_after_the_other(view: Folded) -> bool:
    """True if the rows follow one another in memory, in any order."""
    return rows_in_memory(view) == shape_of(view)[-1]

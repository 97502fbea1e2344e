"""Queries, keys and values [B, H, L, E] as kernels of attention take them, and their results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.onednn.build.reader_layouts import made_for_reader
from golow.levels.direct.onednn.kernels.flash_attention import Placed
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.strided_views import dense
from golow.levels.direct.onednn.steps.value_views import strided
from golow.lower.ir.graph import Ref

if TYPE_CHECKING:
    from golow.levels.direct.onednn.build.builder import Builder


def heads(build: Builder, reference: Ref) -> Tensor:
    """The value as it is stored, if the elements of a head's row are contiguous, else a copy."""
    view = build.views.of(reference)
    layout = strided(view)
    if layout is None or layout.strides[-1] != 1:
        return build.values.plain(reference)
    return view.tensor._replace(shape=build.current.value(reference).shape, descriptor=layout)


def attended(build: Builder, query: Tensor, width: int) -> Tensor:
    """Memory for the result: in its reader's layout, in training in the query's."""
    shape = (*query.shape[:3], width)
    view = made_for_reader(build, shape) if not build.current.trains else None
    layout = strided(view) if view is not None else None
    if view is None or layout is None:
        return made_like(build, 0, query._replace(shape=shape))
    return view.tensor._replace(shape=shape, descriptor=layout)


def made_like(build: Builder, index: int, tensor: Tensor) -> Tensor:
    """Memory for a result of the tensor's shape, with the axes in the order in which its own
    are stored."""
    layout = dense(tensor.shape, (*tensor.layout.strides[:-1], 0))
    return build.memory.new(build.current.output_name(index), tensor.shape, layout)


def placed(tensor: Tensor) -> Placed:
    """Shape and steps, for a kernel."""
    return Placed(tensor.shape, tensor.layout.strides)

"""Ranges that their readers would copy one by one are copied together: the queries, keys and values
that one layer computes, where attention is written in products; and the channels of an image that
several depthwise convolutions divide among themselves, where a token of its class is beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.gemm import strides_of
from golow.levels.direct.cudnn.problems.layouts import UNIT, Layout, layout_of, pixel_pitch
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.cudnn.steps.pixel_ranges import range_pitch
from golow.levels.direct.cudnn.steps.split_axis_views import Folded, folded
from golow.levels.direct.node import CurrentNode
from golow.lower.ir.graph import Node, Ref
from golow.lower.ir.operator import record_of
from golow.lower.ir.rewriting import result
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.expand import Expand
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.slice import Slice

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def copied_together(build: Builder, whole: Ref) -> Tensor | None:
    """Return a copy of a value of which ranges are all that is read, if each reader would copy its
    range as it is stored, but none copies that of the copy; otherwise None."""
    tensor, current = build.values.view(whole), build.current
    nodes = [current.graph.nodes[reader] for reader in current.links.readers[whole.name]]
    if len(nodes) < 2 or tensor.layout.order != "strided" or whole.name in current.links.returned:
        return None
    begin_at_units = math.prod(tensor.shape[1:]) * ITEM_BYTES[tensor.dtype] % UNIT == 0
    if begin_at_units and all(_is_copied_range(current, tensor, node) for node in nodes):
        rows = Tensor(0, tensor.shape, Layout(tensor.dtype))
        if not any(_is_copied_range(current, rows, node) for node in nodes):
            return build.values.rows(whole)
    image = len(tensor.shape) == 4 and tensor.dtype == build.types.computed
    if not image or pixel_pitch(tensor.layout, tensor.shape) is not None:
        return None
    joint = all(_is_convolved_range(current, tensor, node) for node in nodes)
    return build.values.image(whole) if joint else None


def _is_convolved_range(current: CurrentNode, tensor: Tensor, node: Node) -> bool:
    """True if depthwise convolutions alone read a range of an image's channels, and could read it
    in the image."""
    found = Slice.of(node)
    if found is None or found.axis != 1 or found.step != 1:
        return False
    channels, images = tensor.shape[1], Layout(tensor.dtype, "channels_last", tensor.shape[1])
    shape = (tensor.shape[0], found.stop - found.start, *tensor.shape[2:])
    seen = layout_of(tensor.dtype, shape, images.strides(tensor.shape))
    offset = found.start * ITEM_BYTES[tensor.dtype]
    fits = range_pitch(Tensor(0, shape, seen, offset), shape, tensor.dtype) == channels
    readers = [current.graph.nodes[reader] for reader in current.links.readers[result(node)]]
    layers = [Convolution.of(reader) for reader in readers]
    alone = bool(layers) and result(node) not in current.links.returned
    return fits and alone and all(layer and layer.groups == shape[1] > 1 for layer in layers)


def _is_copied_range(current: CurrentNode, tensor: Tensor, node: Node) -> bool:
    found = Slice.of(node)
    if found is None or found.axis != 0 or found.step != 1:
        return False
    step = tensor.layout.strides(tensor.shape)[0]
    offset = tensor.offset + found.start * step * ITEM_BYTES[tensor.dtype]
    shape = (found.stop - found.start, *tensor.shape[1:])
    part = tensor._replace(shape=shape, offset=offset)
    return _is_copied(current, result(node), folded(part))


def _is_copied(current: CurrentNode, name: str, view: Folded) -> bool:
    """True if products alone read a value, through views, and each of them would copy it."""
    readers = current.links.readers[name]
    alone = bool(readers) and name not in current.links.returned
    return alone and all(_copies(current, current.graph.nodes[reader], view) for reader in readers)


def _copies(current: CurrentNode, node: Node, view: Folded) -> bool:
    record = record_of(node)
    if isinstance(record, MatrixProduct):
        return not _is_matrix(view)
    seen: Folded | None
    if isinstance(record, Permute):
        seen = view.permuted(record.order)
    elif isinstance(record, Reshape | Expand) and math.prod(record.shape) == math.prod(view.shape):
        seen = view.reshaped(record.shape)
    else:
        return False
    return seen is None or _is_copied(current, result(node), seen)


def _is_matrix(view: Folded) -> bool:
    """True if products read it as it is stored."""
    strides, tensor = view.strides, view.tensor
    if strides is None or tensor.offset % UNIT:
        return False
    layout = layout_of(tensor.dtype, view.shape, strides)
    return any(strides_of(layout, view.shape, turned) is not None for turned in (False, True))

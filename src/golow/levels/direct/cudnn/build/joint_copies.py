"""Ranges that products would copy one by one are copied together: the queries, keys and values that
one layer computes, where attention is written in products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.gemm import strides_of
from golow.levels.direct.cudnn.problems.layouts import UNIT, layout_of
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.cudnn.steps.split_axis_views import Folded, folded
from golow.levels.direct.node import CurrentNode
from golow.lower.ir.graph import Node, Ref
from golow.lower.ir.operator import record_of
from golow.lower.ir.rewriting import result
from golow.lower.operators.expand import Expand
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.slice import Slice

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def copied_together(build: Builder, whole: Ref) -> Tensor | None:
    """Return a row-major copy of a value, if ranges of its first axis are all that is read of it,
    and products read each of them, but none as it is stored; otherwise None."""
    tensor, current = build.values.view(whole), build.current
    if whole.name in current.links.returned:
        return None
    nodes = [current.graph.nodes[reader] for reader in current.links.readers[whole.name]]
    begin_at_units = math.prod(tensor.shape[1:]) * ITEM_BYTES[tensor.dtype] % UNIT == 0
    if len(nodes) < 2 or tensor.layout.order != "strided" or not begin_at_units:
        return None
    copied = all(_is_copied_range(current, tensor, node) for node in nodes)
    return build.values.rows(whole) if copied else None


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

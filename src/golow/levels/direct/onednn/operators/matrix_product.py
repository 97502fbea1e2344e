"""Products of matrices or batches of matrices; either may be a transposed view."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.constants import DST, SRC, WEIGHTS
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.bindings.primitive import PostOp, Primitive
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.build.reader_layouts import made_for_reader
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.value_views import Folded, strided
from golow.levels.direct.refusing import refuse_integers
from golow.lower.ir.graph import Ref
from golow.lower.operators.matrix_product import MatrixProduct


class Lying(NamedTuple):
    """Both operands as they are stored: the batch's axes split as the heads of attention are."""

    a: Tensor
    b: Tensor
    batch: tuple[int, ...]


def product(build: Builder, arguments: MatrixProduct) -> None:
    """a b factor."""
    lying = _as_they_lie(build, arguments) if not build.current.trains else None
    a, b, batch = lying or _apart(build, arguments)
    rows, columns = build.current.output().shape[-2:]
    view = made_for_reader(build, (*batch, rows, columns))
    target = strided(view)
    if target is None:
        raise LookupError(f"{build.current.name} writes an axis of several strides")
    primitive = _primitive(build, a.layout, b.layout, target, arguments.factor)
    result = view.tensor._replace(descriptor=target)
    build.steps.call(primitive, {SRC: a, WEIGHTS: b}, {DST: result})
    joined = view.reshaped(build.current.output().shape)
    if joined is None:
        raise LookupError(f"{build.current.name} has other axes than its batch")
    build.views.define(joined)


def _primitive(
    build: Builder, a: Descriptor, b: Descriptor, target: Descriptor, factor: float
) -> Primitive:
    scale = [PostOp("linear", factor, 0.0)] if factor != 1 else []
    return Primitive(build.engine, "matmul", a, b, None, target, post_ops=scale)


def _apart(build: Builder, arguments: MatrixProduct) -> Lying:
    """Copies where matrices are interleaved."""
    a, b = _matrix(build, arguments.a), _matrix(build, arguments.b)
    return Lying(a, b, a.layout.shape[:-2])


def _matrix(build: Builder, reference: Ref) -> Tensor:
    """Return the value as it is if each of its matrices is contiguous, otherwise row-major."""
    tensor = build.values.tensor(reference)
    apart = not tensor.layout.blocks and _lie_apart(tensor)
    return tensor if apart else build.values.plain(reference)


def _lie_apart(tensor: Tensor) -> bool:
    shape, strides = tensor.layout.shape, tensor.layout.strides
    sizes = [n * s for n, s in zip(shape[-2:], strides[-2:], strict=True)]
    outer = zip(shape[:-2], strides[:-2], strict=True)
    return all(s >= max(sizes) for n, s in outer if n > 1)


# ---------------------------------------------------------------- heads of attention


def _as_they_lie(build: Builder, arguments: MatrixProduct) -> Lying | None:
    """The operands without copies; None if an axis needs several strides, or if the library's code
    for such operands is not that for row-major ones, which is then faster by more than a copy."""
    a, b = build.views.of(arguments.a), build.views.of(arguments.b)
    for leader in (a, b):
        batch = tuple(part.size for axis in leader.axes[:-2] for part in axis) or (1,)
        found = [_split(view, batch) for view in (a, b)]
        if any(tensor is None for tensor in found):
            continue
        first, second = (tensor for tensor in found if tensor is not None)
        if _is_as_fast(build, first.layout, second.layout):
            return Lying(first, second, batch)
    return None


def _split(view: Folded, batch: Sequence[int]) -> Tensor | None:
    """The view with these axes before those of its matrices; None if one needs several strides, or
    if neither rows nor columns of the matrices are contiguous."""
    rows, columns = (math.prod(part.size for part in axis) for axis in view.axes[-2:])
    shape = (*batch, rows, columns)
    found = view.reshaped(shape)
    layout = strided(found) if found is not None else None
    if layout is None or 1 not in layout.strides[-2:]:
        return None
    return view.tensor._replace(shape=shape, descriptor=layout)


def _is_as_fast(build: Builder, a: Descriptor, b: Descriptor) -> bool:
    """True if the library takes the same code as for row-major operands."""
    target = Descriptor.plain((*a.shape[:-1], b.shape[-1]))
    plain = (Descriptor.plain(a.shape), Descriptor.plain(b.shape))
    made = [_primitive(build, *given, target, 1.0).implementation for given in ((a, b), plain)]
    return made[0] == made[1]


def _refuse(arguments: MatrixProduct, question: Question) -> str:
    added = "" if arguments.added is None else "a product adds nothing here"
    return added or refuse_integers(arguments, question)


IMPLEMENTATIONS = (Implementation(MatrixProduct, product, _refuse),)

"""Copies of a value into another layout.

oneDNN copies most layouts with code generated for them. For some it has only its generic code,
which is up to a hundred times slower and takes one element at a time: ranges of blocks, and ranges
of axes whose rows do not fit its patterns. These are copied by a kernel of golow's own, where there
is a compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.onednn.bindings.constants import DST, SRC
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.levels.direct.onednn.kernels import Kernel
from golow.levels.direct.onednn.kernels.elements import Written, elements, input_name
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.strided_views import fits, follows, seen

if TYPE_CHECKING:
    from golow.levels.direct.onednn.build.builder import Builder

GENERIC = ("simple", "ref")  # how the names of such implementations begin


def is_generic(primitive: Primitive) -> bool:
    """True if the library has only its generic code for it."""
    return primitive.implementation.startswith(GENERIC)


def reorder(build: Builder, source: Tensor, target: Tensor, operation: str = "reorder") -> None:
    """Add the step that copies a tensor into another one of the same shape."""
    primitive = Primitive(build.engine, "reorder", source.layout, target.layout)
    kernel = None
    if build.generates and is_generic(primitive):
        kernel = _kernel(source, target)
    if kernel is None:
        build.steps.call(primitive, {SRC: source}, {DST: target}, operation)
    else:
        build.steps.kernel(kernel, [source], [target], operation)


def _kernel(source: Tensor, target: Tensor) -> Kernel | None:
    """The kernel that copies; None for layouts that it cannot follow."""
    layout = source.layout if source.layout.blocks else target.layout
    if source.dtype != target.dtype or not (fits(layout) and follows(target, layout)):
        return None
    read, written = seen(source, layout), seen(target, layout)
    return elements([], [read.view], [Written(input_name(0), written.view)], read.sizes)

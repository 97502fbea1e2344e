"""The rounding of a layer's result to the whole numbers that the next layer reads, as a post-op.

The result is multiplied by a scale in float32; the library then rounds it to the nearest whole
number, of two equally near ones to the even one, and clips it, because its target has 8 bits. That
is `Quantize` to the bit. The library's own scale of a target would divide instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.onednn.bindings.constants import POST_OP_STRIDE, SRC_1
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.bindings.primitive import PostOp
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.lower.ir.graph import Ref

if TYPE_CHECKING:
    from golow.levels.direct.onednn.build.builder import Builder


class Rounding(NamedTuple):
    """Post-ops of a primitive with a rounding at their end, and the rounding's argument."""

    post_ops: list[PostOp]
    reads: dict[int, Tensor]


def with_rounding(build: Builder, scale: Ref | None, post_ops: list[PostOp], axes: int) -> Rounding:
    """Append the rounding, if there is a scale. axes: of the primitive's target."""
    if scale is None:
        return Rounding(post_ops, {})
    number = Descriptor.plain((1,) * axes)
    value = build.values.wanted(scale, Descriptor.plain(()))._replace(descriptor=number)
    place = POST_OP_STRIDE * (len(post_ops) + 1) | SRC_1
    return Rounding([*post_ops, PostOp("mul", descriptor=number)], {place: value})

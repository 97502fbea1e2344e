"""Convolutions of one pixel as products of matrices: of ranges of wider images, and written where
they are joined."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.engines.one_pixel import as_product
from golow.levels.direct.cudnn.problems import products
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.gemm import Strides
from golow.levels.direct.cudnn.problems.layouts import UNIT, Layout
from golow.levels.direct.cudnn.steps.built_plan import Tensor, alignment_of
from golow.levels.direct.cudnn.steps.pixel_ranges import range_pitch, seen_range
from golow.lower.operators.convolution import Convolution

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def product_of_ranges(
    build: Builder, arguments: Convolution, whole: products.Convolution
) -> Tensor | None:
    """Add the convolution as a product if it reads or writes a range of a wider image, and return
    its result; None if it does not, or is more than a product with bias and relu."""
    problem = as_product(whole)
    if problem is None or problem.residual or build.current.is_input(arguments.x):
        return None
    output, layout = build.current.output(), Layout(whole.result, "channels_last", whole.output[1])
    seen = seen_range(build, arguments.x, whole.image, whole.dtype)
    read = seen and _in_units(*seen, whole.dtype)
    there = build.concatenations.tensor(output.name, whole.output, layout)
    pitch = None if there is None else range_pitch(there, whole.output, whole.result)
    written = pitch and there and _in_units(there, pitch, whole.result)
    if not read and not written:
        return None
    x = seen[0] if seen and read else build.values.image(arguments.x)
    if there is None or not written:
        there = build.memory.new(output.name, whole.output, layout)
    problem = replace(
        problem,
        a=Strides(row=read or None),
        d=Strides(row=written or None),
        alignment=alignment_of((x, there)),
    )
    rows = Layout(whole.dtype, "channels_last", whole.weight[1])
    reads = [x, build.values.wanted(arguments.weight, rows)]
    if arguments.bias is not None:
        reads.append(build.values.wanted(arguments.bias, Layout(whole.dtype)))
    build.steps.engine(build.engine_for(problem), reads, [there])
    return there


def _in_units(tensor: Tensor, pitch: int, dtype: str) -> int | None:
    """The pitch, if rows begin at multiples of a unit."""
    aligned = pitch * ITEM_BYTES[dtype] % UNIT == 0 and tensor.offset % UNIT == 0
    return pitch if aligned else None

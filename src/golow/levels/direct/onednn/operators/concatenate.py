"""Tensors joined along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.constants import CHANNELS_LAST, DST, MULTIPLE_SRC
from golow.levels.direct.onednn.bindings.library import Descriptor, array, channel_block
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels.copies import parts_joined
from golow.levels.direct.onednn.steps.array_steps import of_arrays
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.reorders import is_generic, reorder
from golow.levels.direct.onednn.steps.strided_views import row_major
from golow.levels.direct.onednn.steps.value_views import ITEM_BYTES
from golow.lower.operators.concatenate import Concatenate

# Elements that one thread copies sooner than two would with the library: 20 us for 31 to 128 KiB.
MOST_OF_ONE_THREAD = 131_072


def concatenate(build: Builder, arguments: Concatenate) -> None:
    """In blocks of channels if whole blocks are joined, otherwise in the layout that the library
    prefers; where the library has only its generic code, by a generated kernel, or part by part if
    the layouts differ."""
    output = build.current.output()
    if output.dtype != "float32":
        _of_integers(build, arguments)
        return
    sources = [build.values.tensor(part) for part in arguments.parts]
    if any(source.layout.blocks for source in sources):
        sources = _alike(build, arguments)
    layouts = [source.layout for source in sources]
    target = Descriptor.tagged(output.shape)
    primitive = Primitive(
        build.engine, "concat", target, len(layouts), arguments.axis, array(layouts)
    )
    rows = _rows(sources, output.shape, arguments.axis)
    simple = build.generates and is_generic(primitive)
    if simple and rows is not None and rows.are_shared_or_few:
        made = build.memory.new(output.name, output.shape, rows.layout)
        if sum(rows.widths):
            build.steps.kernel(parts_joined("float32", rows.number, rows.widths), sources, [made])
        build.values.define(0, made)
        return
    if simple and rows is None and not all(map(build.values.is_constant, arguments.parts)):
        _part_by_part(build, arguments, sources)
        return
    result = build.memory.new(output.name, output.shape, primitive.descriptor(DST))
    reads = {MULTIPLE_SRC + index: source for index, source in enumerate(sources)}
    build.steps.call(primitive, reads, {DST: result})
    build.values.define(0, result)


def _part_by_part(build: Builder, arguments: Concatenate, sources: Sequence[Tensor]) -> None:
    """Copy each part into its range of a row-major result, first those that change: then a part of
    weights alone is not copied once, while loading, into memory that others use, too."""
    output, axis = build.current.output(), arguments.axis
    strides = row_major(output.shape)
    made = build.memory.new(output.name, output.shape, Descriptor.plain(output.shape))
    starts = accumulate((source.shape[axis] for source in sources), initial=0)
    ranges = list(zip(arguments.parts, sources, starts, strict=False))
    for _, source, start in sorted(ranges, key=lambda item: build.values.is_constant(item[0])):
        layout = Descriptor.strided(source.shape, strides)
        offset = start * strides[axis] * ITEM_BYTES
        target = Tensor(made.buffer, source.shape, made.dtype, layout, offset)
        if math.prod(source.shape):
            reorder(build, source, target, "concatenate")
    build.values.define(0, made)


class Rows(NamedTuple):
    """Parts as rows that are joined: how many, how long each is in every part, and the layout of
    the result."""

    number: int
    widths: list[int]
    layout: Descriptor

    @property
    def are_shared_or_few(self) -> bool:
        """True if threads share them, or one copies them soon enough."""
        return self.number > 1 or sum(self.widths) < MOST_OF_ONE_THREAD


def _rows(sources: Sequence[Tensor], shape: tuple[int, ...], axis: int) -> Rows | None:
    """The parts as rows, if all have the same layout: row-major, with channels last or in blocks of
    them."""
    layouts, shapes = [source.layout for source in sources], [source.shape for source in sources]
    if all(layout.is_plain for layout in layouts):
        widths = [math.prod(part[axis:]) for part in shapes]
        return Rows(math.prod(shape[:axis]), widths, Descriptor.plain(shape))
    if len(shape) != 4 or axis != 1:
        return None
    if all(layout.blocks for layout in layouts):
        widths = [math.prod(part[1:]) for part in shapes]
        return Rows(shape[0], widths, Descriptor.tagged(shape, channel_block().tag))
    if all(layout == Descriptor.tagged(layout.shape, CHANNELS_LAST) for layout in layouts):
        layout = Descriptor.tagged(shape, CHANNELS_LAST)
        return Rows(math.prod(shape) // shape[1], [part[1] for part in shapes], layout)
    return None


def _alike(build: Builder, arguments: Concatenate) -> list[Tensor]:
    """The parts in blocks of channels if each channel is in a full block of its part, so that the
    result has no gaps; otherwise row-major."""
    block = channel_block()
    shapes = [build.current.value(part).shape for part in arguments.parts]
    if any(len(shape) != 4 or shape[1] % block.size for shape in shapes):
        return [build.values.plain(part) for part in arguments.parts]
    return [
        build.values.wanted(part, Descriptor.tagged(shape, block.tag))
        for part, shape in zip(arguments.parts, shapes, strict=True)
    ]


def _of_integers(build: Builder, arguments: Concatenate) -> None:
    axis = arguments.axis

    def run(*arrays: Any) -> None:
        *parts, y = arrays
        np.concatenate(parts, axis=axis, out=y, casting="unsafe")

    of_arrays(build, run, *arguments.parts)


def _refuse(arguments: Concatenate, question: Question) -> str:
    dtypes = {question.value(part).dtype for part in arguments.parts}
    if len(dtypes) > 1:
        return f"{question.node.op} of {' and '.join(sorted(dtypes))}"
    return ""


IMPLEMENTATIONS = (Implementation(Concatenate, concatenate, _refuse),)

"""Tensors joined along an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.onednn.arrays import of_arrays, result
from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.constants import DST, MULTIPLE_SRC
from golow.levels.vendor.onednn.kernels import WORTH_A_THREAD
from golow.levels.vendor.onednn.kernels.copies import parts_joined
from golow.levels.vendor.onednn.library import Descriptor, array, channel_block
from golow.levels.vendor.onednn.primitive import Primitive
from golow.levels.vendor.onednn.steps import Tensor
from golow.lower.operators.concatenate import Concatenate


def concatenate(build: Builder, arguments: Concatenate) -> None:
    """In blocks of channels if whole blocks are joined, otherwise in the layout that the library
    prefers; few elements by a generated kernel where the library has only its reference code."""
    output = build.output()
    if output.dtype != "float32":
        _of_integers(build, arguments)
        return
    sources = [build.tensor(part) for part in arguments.parts]
    if any(source.layout.blocks for source in sources):
        sources = _alike(build, arguments)
    layouts = [source.layout for source in sources]
    target = Descriptor.tagged(output.shape)
    primitive = Primitive(
        build.engine, "concat", target, len(layouts), arguments.axis, array(layouts)
    )
    few = math.prod(output.shape) < WORTH_A_THREAD and all(layout.is_plain for layout in layouts)
    if build.generates and few and primitive.implementation.startswith("simple"):
        _by_kernel(build, arguments)
        return
    result = build.new(output.name, output.shape, primitive.descriptor(DST))
    reads = {MULTIPLE_SRC + index: source for index, source in enumerate(sources)}
    build.call(primitive, reads, {DST: result})
    build.define(0, result)


def _by_kernel(build: Builder, arguments: Concatenate) -> None:
    parts = [build.plain(part) for part in arguments.parts]
    made, axis = result(build), arguments.axis
    if math.prod(made.shape):
        widths = [math.prod(part.shape[axis:]) for part in parts]
        kernel = parts_joined(made.dtype, math.prod(made.shape[:axis]), widths)
        build.kernel(kernel, parts, [made])
    build.define(0, made)


def _alike(build: Builder, arguments: Concatenate) -> list[Tensor]:
    """The parts in blocks of channels if each channel is in a full block of its part, so that the
    result has no gaps; otherwise row-major."""
    block = channel_block()
    shapes = [build.value(part).shape for part in arguments.parts]
    if any(len(shape) != 4 or shape[1] % block.size for shape in shapes):
        return [build.plain(part) for part in arguments.parts]
    return [
        build.wanted(part, Descriptor.tagged(shape, block.tag))
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

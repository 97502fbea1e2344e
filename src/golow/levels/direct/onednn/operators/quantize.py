"""Numbers as whole numbers of 8 bits: a reorder with a scale, which also arranges them for the
layer that reads them."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.constants import CHANNELS_LAST, DST, SCALES, SRC
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.refusing import not_floating
from golow.lower.operators.quantize import Quantize
from golow.lower.operators.quantized_convolution import QuantizedConvolution

ALL_ALIKE = 0
"""The mask of a scale that is the same for all elements."""


def quantize(build: Builder, arguments: Quantize) -> None:
    """x * scale, rounded and clipped; images in channels last, as convolutions of whole numbers
    read them."""
    output, x = build.current.output(), build.values.tensor(arguments.x)
    layout = Descriptor.plain(output.shape, output.dtype)
    if _feeds_convolution(build, output.name):
        layout = Descriptor.tagged(output.shape, CHANNELS_LAST, output.dtype)
    scale = build.values.wanted(arguments.scale, Descriptor.plain(()))
    primitive = Primitive(build.engine, "reorder", x.layout, layout, scales={SRC: ALL_ALIKE})
    result = build.memory.new(output.name, output.shape, layout, output.dtype)
    build.steps.call(primitive, {SRC: x, SCALES | SRC: scale}, {DST: result})
    build.values.define(0, result)


def _feeds_convolution(build: Builder, name: str) -> bool:
    links = build.current.links
    readers = (links.nodes[position].op for position in links.readers[name])
    return QuantizedConvolution.op() in readers


def _refuse(arguments: Quantize, question: Question) -> str:
    return not_floating(question, arguments.x, arguments.scale)


IMPLEMENTATIONS = (Implementation(Quantize, quantize, _refuse),)

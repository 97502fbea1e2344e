"""Tensors joined along an axis."""

from __future__ import annotations

from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.constants import DST, MULTIPLE_SRC
from golow.levels.vendor.onednn.library import Descriptor, array
from golow.levels.vendor.onednn.primitive import Primitive
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.operators.concatenate import Concatenate


def concatenate(build: Builder, arguments: Concatenate) -> None:
    """In the layout that the library prefers; row-major if a part has a blocked layout."""
    output = build.output()
    sources = [build.tensor(part) for part in arguments.parts]
    if any(source.layout.blocks for source in sources):
        sources = [build.plain(part) for part in arguments.parts]
    layouts = [source.layout for source in sources]
    target = Descriptor.tagged(output.shape)
    primitive = Primitive(
        build.engine, "concat", target, len(layouts), arguments.axis, array(layouts)
    )
    result = build.new(output.name, output.shape, primitive.descriptor(DST))
    reads = {MULTIPLE_SRC + index: source for index, source in enumerate(sources)}
    build.call(primitive, reads, {DST: result})
    build.define(0, result)


IMPLEMENTATIONS = (Implementation(Concatenate, concatenate, refuse_integers),)

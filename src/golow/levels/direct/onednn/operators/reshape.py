"""Reshape: equal elements with another shape."""

from __future__ import annotations

from contextlib import suppress

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.bindings.library import Descriptor, OneDnnError
from golow.levels.direct.onednn.build.builder import Builder
from golow.lower.operators.reshape import Reshape


def reshape(build: Builder, arguments: Reshape) -> None:
    """A view; of blocks only if they stay whole, otherwise the tensor is reordered to row-major."""
    if build.current.output().dtype != "float32" or 0 in arguments.shape:
        tensor = build.values.plain(arguments.x)
        if tensor.descriptor is not None:
            tensor = tensor._replace(descriptor=Descriptor.plain(arguments.shape))
        build.values.define(0, tensor)
        return
    if build.views.in_blocks(arguments.x):
        tensor = build.values.tensor(arguments.x)
        with suppress(OneDnnError):
            layout = tensor.layout.reshaped(arguments.shape)
            build.values.define(0, tensor._replace(descriptor=layout))
            return
    view = build.views.of(arguments.x).reshaped(arguments.shape)
    if view is None:
        tensor = build.values.plain(arguments.x)
        build.values.define(0, tensor._replace(descriptor=Descriptor.plain(arguments.shape)))
    else:
        build.views.define(view)


IMPLEMENTATIONS = (Implementation(Reshape, reshape),)

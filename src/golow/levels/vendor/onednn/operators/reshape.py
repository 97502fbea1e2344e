"""The same elements with another shape."""

from __future__ import annotations

from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.library import Descriptor, OneDnnError
from golow.lower.operators.reshape import Reshape


def reshape(build: Builder, arguments: Reshape) -> None:
    """A view; the tensor is first reordered to row-major if its layout does not allow a view."""
    tensor = build.tensor(arguments.x)
    if tensor.descriptor is None:
        build.define(0, tensor)
        return
    try:
        view = tensor.layout.reshaped(arguments.shape)
    except OneDnnError:
        tensor = build.plain(arguments.x)
        view = Descriptor.plain(arguments.shape)
    build.define(0, tensor._replace(descriptor=view))


IMPLEMENTATIONS = (Implementation(Reshape, reshape),)

"""Steps on row-major NumPy arrays, for what oneDNN has no primitive for: integers, truth values,
indices, and functions of elements beyond its own. None of them loops over elements in Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.steps.built_plan import Tensor

if TYPE_CHECKING:
    from golow.levels.direct.onednn.build.builder import Builder
    from golow.lower.ir.graph import Ref


def result(build: Builder, index: int = 0) -> Tensor:
    """Row-major memory for the current node's value of that index, which must have a reader."""
    value = build.current.output(index)
    descriptor = Descriptor.plain(value.shape) if value.dtype == "float32" else None
    return build.memory.new(value.name, value.shape, descriptor, value.dtype)


def of_arrays(build: Builder, run: Callable[..., None], *given: Ref) -> None:
    """Add a step that computes the current node's only value: run(*arrays, result)."""
    tensors = [build.values.plain(reference) for reference in given]
    made = result(build)
    if math.prod(made.shape):
        build.steps.array_call(run, tensors, [made])
    build.values.define(0, made)


def results_of_arrays(build: Builder, run: Callable[..., None], given: Sequence[Ref]) -> None:
    """Results for a node of several values; one without a reader is None to the function."""
    tensors = [build.values.plain(reference) for reference in given]
    count = len(build.current.node.outputs)
    made = [
        result(build, index) if build.current.is_read(index) else None for index in range(count)
    ]
    kept = [tensor for tensor in made if tensor is not None]

    def call(*arrays: object) -> None:
        rest = iter(arrays[len(tensors) :])
        run(*arrays[: len(tensors)], *(None if t is None else next(rest) for t in made))

    build.steps.array_call(call, tensors, kept)
    for index, tensor in enumerate(made):
        if tensor is not None:
            build.values.define(index, tensor)

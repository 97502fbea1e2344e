"""Rows of a cache, in the cache's own memory where nothing needs its old content."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels.cache_rows import AXES, cache_rows
from golow.levels.direct.onednn.steps.array_steps import result
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.strided_views import row_major
from golow.lower.operators.cache_update import CacheUpdate


def cache_update(build: Builder, arguments: CacheUpdate) -> None:
    """Write the rows; nothing else of the cache is read or written."""
    old = build.values.plain(arguments.x)
    made = build.outputs.state_for(0) or result(build)
    if made.buffer != old.buffer:
        build.values.copy(old, made)
    rows, position = _rows(build, arguments), build.values.plain(arguments.position)
    axis = arguments.axis
    if build.generates and len(rows.shape) <= AXES:
        steps = row_major(rows.shape) if rows.descriptor is None else rows.layout.strides
        kernel = cache_rows(
            rows.dtype, rows.shape, steps, made.shape, axis, math.prod(position.shape)
        )
        build.steps.kernel(kernel, [rows, position], [_written(made, rows.shape)])
    else:
        last = made.shape[axis] - rows.shape[axis]

        def run(given: Any, start: Any, cache: Any) -> None:
            starts = start.reshape(-1).clip(0, last)
            for text, first in enumerate(starts):
                own = slice(text, text + 1) if len(starts) > 1 else slice(None)
                new, kept = (np.moveaxis(item[own], axis, 0) for item in (given, cache))
                kept[first : first + len(new)] = new

        given = build.values.plain(arguments.rows)
        build.steps.array_call(run, [given, position], [made])
    build.values.define(0, made)


def _rows(build: Builder, arguments: CacheUpdate) -> Tensor:
    """The rows as they are stored, if they have strides."""
    reference = arguments.rows
    floating = build.current.value(reference).dtype == "float32"
    if not build.generates or not floating or build.views.in_blocks(reference):
        return build.values.plain(reference)
    return build.views.as_it_lies(reference)


def _written(cache: Tensor, shape: tuple[int, ...]) -> Tensor:
    """As many rows of the cache as the step writes; where they begin is data."""
    if cache.descriptor is None:
        return cache._replace(shape=shape)
    layout = Descriptor.strided(shape, cache.layout.strides)
    return cache._replace(shape=shape, descriptor=layout)


IMPLEMENTATIONS = (Implementation(CacheUpdate, cache_update),)

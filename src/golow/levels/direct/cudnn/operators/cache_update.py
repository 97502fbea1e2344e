"""Rows of a cache, in the cache's own memory where nothing needs its old content."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES, ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import Layout, layout_of
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import integers
from golow.levels.direct.cudnn.shared_kernels.geometry import VECTOR, flat
from golow.levels.direct.cudnn.steps.built_plan import KEPT, Tensor
from golow.levels.direct.implementation import Implementation, Question
from golow.lower.ir.graph import Ref
from golow.lower.operators.cache_update import CacheUpdate

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")
AXES = 4


def cache_update(build: Builder, arguments: CacheUpdate) -> None:
    """Write the rows; nothing else of the cache is read or written."""
    made, axis = in_place(build, arguments.x, build.current.output_name()), arguments.axis
    rows, position = build.values.view(arguments.rows), build.values.rows(arguments.position)
    strides = made.layout.strides(made.shape)
    kernel = cache_rows(
        (rows.dtype, made.dtype), rows.shape, rows.layout.strides(rows.shape), strides,
        made.shape[axis], axis,
    )  # fmt: skip
    part = made._replace(shape=rows.shape, layout=layout_of(made.dtype, rows.shape, strides))
    build.steps.kernel(kernel, [rows, position], [part])
    build.values.define(0, made)


def in_place(build: Builder, cache: Ref, name: str) -> Tensor:
    """The cache's own memory, or a copy, with that name, if something still reads its content."""
    old = build.values.rows(cache)
    kept = build.memory.buffer(old).place == KEPT
    if build.values.dies(cache) or (kept and build.current.is_read_last(cache.name)):
        return old
    made = build.memory.new(name, old.shape, Layout(old.dtype))
    build.values.copy(old, made)
    return made


def cache_rows(
    dtypes: tuple[str, str],
    shape: Sequence[int],
    rows: Sequence[int],
    cache: Sequence[int],
    size: int,
    axis: int,
) -> Kernel:
    """Pointers: rows, position (int64) -> cache. dtypes: of rows and cache; shape: of the rows;
    rows, cache: strides; size: of the cache's axis."""
    extra = AXES - len(shape)
    sizes = [1] * extra + [*shape]
    strides = ([0] * extra + [*item] for item in (rows, cache))
    count = math.prod(shape)
    numbers = (*(step for item in strides for step in item), size - shape[axis], cache[axis])
    grid, block = flat(max(count, 1), 1)
    scalars = (np.int64(count), *integers(*sizes[1:]), *(np.int64(number) for number in numbers))
    types = ", ".join(C_TYPES[dtype] for dtype in dtypes)
    return Kernel(FILE, f"cache_rows<{types}>", grid, block, scalars, code=VECTOR)


def _refuse(arguments: CacheUpdate, question: Question) -> str:
    value = question.value(arguments.x)
    if math.prod(question.value(arguments.position).shape) > 1:
        return "golow.cache_update at a position for each text"
    if len(value.shape) > AXES:
        return f"golow.cache_update of {len(value.shape)} axes"
    known = value.dtype in ("float32", "int64", "int32")
    return "" if known and value.dtype in ITEM_BYTES else f"golow.cache_update on {value.dtype}"


IMPLEMENTATIONS = (Implementation(CacheUpdate, cache_update, _refuse),)

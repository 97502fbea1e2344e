"""One new token's attention, with its rows of the caches, by golow's kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.direct.cudnn.build.refusing import beyond_kernel
from golow.levels.direct.cudnn.operators.cache_update import in_place
from golow.levels.direct.cudnn.problems.element_types import C_TYPES, ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import Layout, layout_of
from golow.levels.direct.cudnn.problems.products import Placed
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import ceiling, floats, integers
from golow.levels.direct.cudnn.shared_kernels.columns import COLUMNS, Sums
from golow.levels.direct.cudnn.shared_kernels.geometry import MOST_PARTS
from golow.levels.direct.cudnn.steps import sums
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.implementation import Implementation, Question
from golow.lower.ir.graph import Ref
from golow.lower.operators.step_attention import StepAttention

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")
STREAMING = (FOLDER / "streaming.cuh").read_text()
THREADS, STEPS = 128, 4  # as in the file
MOST_HEADS = 4  # of a block: their queries and sums are in registers
MOST_SPLITS = 64
BLOCKS, LONG = 132, 4096  # one on each multiprocessor, beside a product; from this length on, two
BYTES = 16  # that a thread loads at once
BESIDE = 16
"""Bytes of shared memory that it asks for and does not use. Kernels that ask divide the memory of a
multiprocessor in one way, and only such ones run side by side: the products around it ask."""


def step_attention(build: Builder, arguments: StepAttention) -> None:
    """The result has the heads side by side, as the next layer joins them."""
    rows = [_row(build, item) for item in (arguments.query, arguments.key, arguments.value)]
    angles = [
        None if item is None else build.values.wanted(item, Layout("float32"))
        for item in (arguments.cosine, arguments.sine)
    ]
    position = build.values.rows(arguments.position)
    names = (build.current.output_name(1), build.current.output_name(2))
    caches = [
        in_place(build, item, name)
        for item, name in zip((arguments.keys, arguments.values), names, strict=True)
    ]
    output = build.values.result(0, Layout(rows[0].dtype))
    launched = kernel_of(
        [_placed(tensor) for tensor in (*rows, *caches)],
        (rows[0].dtype, caches[0].dtype),
        _scale(arguments, rows[0].shape[3]),
        arguments.window,
        rotated=arguments.cosine is not None,
    )
    new = [_part(cache, row) for cache, row in zip(caches, rows[1:], strict=True)]
    sums.launch(build, launched, [*rows, *caches, position, *angles], [output, *new])
    for index, tensor in enumerate((output, *caches)):
        build.values.define(index, tensor)


def _row(build: Builder, reference: Ref) -> Tensor:
    """The value as it is stored, if a head's elements are contiguous and aligned, else a copy."""
    tensor = build.values.view(reference)
    *steps, last = tensor.layout.strides(tensor.shape)
    whole = BYTES // ITEM_BYTES[tensor.dtype]
    if last == 1 and tensor.offset % BYTES == 0 and not any(step % whole for step in steps):
        return tensor
    return build.values.wanted(reference, Layout(tensor.dtype))


def _part(cache: Tensor, rows: Tensor) -> Tensor:
    """Part of a cache that a step writes."""
    strides = cache.layout.strides(cache.shape)
    layout = layout_of(cache.dtype, rows.shape, strides)
    return cache._replace(shape=rows.shape, layout=layout)


def _placed(tensor: Tensor) -> Placed:
    return Placed(tuple(tensor.shape), tuple(tensor.layout.strides(tensor.shape)))


def _scale(arguments: StepAttention, width: int) -> float:
    return 1 / math.sqrt(width) if arguments.scale is None else arguments.scale


def kernel_of(
    places: Sequence[Placed],
    dtypes: tuple[str, str],
    scale: float,
    window: int = 0,
    rotated: bool = False,
) -> Sums:
    """Pointers: query, key, value, both caches, position (int64), cosines and sines (float32 [E])
    or absent -> output [B, H, E], both caches once more, then those of `Sums`. places: of the first
    five; dtypes: of query, rows and output, and of the caches. Raises ValueError for what the
    kernel does not take."""
    images, heads, _, width = places[0].shape
    groups, longest = places[3].shape[1:3]
    sharing, vector = heads // groups, BYTES // ITEM_BYTES[dtypes[1]]
    lanes = width // vector
    if width % vector or lanes not in (4, 8, 16, 32) or images * groups > MOST_PARTS:
        raise ValueError(f"heads of {width} elements for {images} texts")
    taken = ceiling(sharing, ceiling(sharing, MOST_HEADS))
    tiles = ceiling(sharing, taken)
    keys = THREADS // lanes * STEPS
    wanted = ceiling(BLOCKS * (1 + (longest > LONG)), images * groups * tiles)
    splits = max(1, min(wanted, longest // keys, MOST_SPLITS))
    types = f"{C_TYPES[dtypes[0]]}, {C_TYPES[dtypes[1]]}"
    steps = [*(step for place in places[:3] for step in place.strides[:2])]
    steps += [step for place in places[3:] for step in place.strides[:3]]
    kernel = Kernel(
        FILE,
        f"step_attention<{types}, {taken}, {width}, {str(rotated).lower()}>",
        (splits, tiles, images * groups),
        (THREADS, 1, 1),
        (
            *integers(groups, sharing, longest),
            *map(np.int64, steps),
            *integers(window),
            *floats(scale),
        ),
        shared=BESIDE,
        code=f"{COLUMNS}{STREAMING}constexpr int MOST_SPLITS = {MOST_SPLITS};\n",
    )
    blocks, each = tiles * images * groups, splits * taken * (width + 2)
    return Sums(kernel, blocks * ceiling(each, 4) * 4, blocks)  # each from a whole vector on


def _refuse(arguments: StepAttention, question: Question) -> str:
    names = (arguments.query, arguments.key, arguments.value, arguments.keys, arguments.values)
    shapes = [question.value(item).shape for item in names]
    places = [Placed(shape, Layout("float32").strides(shape)) for shape in shapes]
    return beyond_kernel(question, lambda: kernel_of(places, ("float32", "float32"), 1.0))


IMPLEMENTATIONS = (Implementation(StepAttention, step_attention, _refuse),)

"""Launches flash attention on tensor cores: of float32 tensors by flash_attention.cu, of
16-bit tensors, forward, by flash_attention_half.cu. These have the mathematics, flash_attention.cuh
the tiles of float32, scores.cuh what they share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.problems.products import AttentionProblem, Placed
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import CODE, ceiling, floats, integers
from golow.levels.direct.cudnn.shared_kernels.few_pixels import TENSOR_CORES
from golow.levels.direct.cudnn.shared_kernels.geometry import LARGEST_INT, MOST_PARTS

FILE, HALF = FOLDER / "flash_attention.cu", FOLDER / "flash_attention_half.cu"
SCORES = CODE + TENSOR_CORES + (FOLDER / "scores.cuh").read_text()
INCLUDED = SCORES + (FOLDER / "flash_attention.cuh").read_text()
WIDTH_STEP, MOST_WIDTH, MOST_WIDTH_BACKWARD = 8, 128, 64  # of a head
ROWS_OF_WARP = 16
BACKWARD_WARPS, BACKWARD_TILE = 4, 32
NOWHERE = Placed((0, 0, 0, 0), (0, 0, 0, 0))


class Tiling(NamedTuple):
    """A forward block: its warps, with 16 rows each, and how many keys it takes at a time."""

    warps: int
    keys: int


# The likeliest first. Wide heads leave registers for fewer keys, and shared memory.
NARROW_TILINGS = (Tiling(4, 32), Tiling(8, 64), Tiling(4, 64))
WIDE_TILINGS = (Tiling(8, 32), Tiling(4, 16))
NARROW_HALF_TILINGS = (Tiling(4, 64), Tiling(8, 64), Tiling(4, 32), Tiling(2, 32))
WIDE_HALF_TILINGS = (Tiling(4, 32), Tiling(8, 32))
WIDE = 64  # wider than this


def takes(problem: AttentionProblem) -> bool:
    """True if there is a kernel for it: of heads of at most 128 elements, as many as a multiple of
    eight; in training of at most 64, and of float32 alone, or with dropout."""
    trains = problem.gradient is not None or problem.keeps
    widest = MOST_WIDTH_BACKWARD if trains else MOST_WIDTH
    widths = (problem.query.shape[3], problem.value.shape[3])
    places = [place for place in _places(problem) if place is not NOWHERE]
    images, heads = problem.query.shape[:2]
    return (
        (problem.dtype == "float32" or not trains or problem.kept)
        and max(widths) <= widest
        and not any(width % WIDTH_STEP for width in widths)
        and max(images, heads) <= MOST_PARTS
        and max(place.extent for place in places) <= LARGEST_INT
    )


def tilings(problem: AttentionProblem) -> tuple[Tiling, ...]:
    """Tilings of a forward problem, the likeliest first."""
    is_wide = max(problem.query.shape[3], problem.value.shape[3]) > WIDE
    if not is_half(problem):
        return WIDE_TILINGS if is_wide else NARROW_TILINGS
    return WIDE_HALF_TILINGS if is_wide else NARROW_HALF_TILINGS


def is_half(problem: AttentionProblem) -> bool:
    """True if flash_attention_half.cu has its kernels, which keep no logarithms."""
    return problem.dtype != "float32" and not problem.kept


def forward(problem: AttentionProblem, tiling: Tiling) -> Kernel:
    """Pointers: query, key, value, added or 0[, kept, probability], output; unless `is_half`, then
    logarithms or 0; at multiples of 16 bytes. Raises ValueError for what no kernel takes."""
    _require(problem)
    images, heads, rows, _ = problem.query.shape
    file, name, code, last = FILE, "forward<", _included(problem), _last(problem)
    if is_half(problem):
        file, name, code, last = HALF, f"forward_half<{C_TYPES[problem.dtype]}, ", SCORES, ""
    return Kernel(
        file,
        f"{name}{_added_type(problem)}, {tiling.warps}, {tiling.keys}, {_sizes(problem)}{last}>",
        (ceiling(rows, ROWS_OF_WARP * tiling.warps), heads, images),
        (32 * tiling.warps, 1, 1),
        (*_scalars(problem), *floats(problem.scale)),
        code=code,
    )


def backward(problem: AttentionProblem) -> tuple[Kernel, Kernel]:
    """Pointers of both: query, key, value, added or 0[, kept, probability], output, its gradient,
    logarithms, gradients of query, key and value, and scratch for `delta` [images, heads, rows] in
    float32. Raises ValueError for what the kernels do not take."""
    _require(problem)
    images, heads, rows, _ = problem.query.shape
    groups, keys = problem.key.shape[1:3]
    block = ROWS_OF_WARP * BACKWARD_WARPS
    kernels = [
        Kernel(
            FILE,
            f"{name}<{_added_type(problem)}, {BACKWARD_TILE}, {_sizes(problem)}{_last(problem)}>",
            grid,
            (32 * BACKWARD_WARPS, 1, 1),
            (*integers(heads), *_scalars(problem), *floats(problem.scale)),
            code=_included(problem),
        )
        for name, grid in (
            ("backward_query", (ceiling(rows, block), heads, images)),
            ("backward_keys", (ceiling(keys, block), groups, images)),
        )
    ]
    return kernels[0], kernels[1]


def _included(problem: AttentionProblem) -> str:
    """Text before that of flash_attention.cu."""
    return f"#define DROPS\n{INCLUDED}" if problem.kept else INCLUDED


def _last(problem: AttentionProblem) -> str:
    """The type of the tensors as the last argument of a template."""
    return "" if problem.dtype == "float32" else f", {C_TYPES[problem.dtype]}"


def _require(problem: AttentionProblem) -> None:
    if not takes(problem):
        raise ValueError(
            f"attention takes heads of at most {MOST_WIDTH} elements, in training, of float32 "
            f"alone or with dropout, {MOST_WIDTH_BACKWARD}, in multiples of {WIDTH_STEP}, and "
            f"tensors below 2^31 elements: {problem}"
        )


def _places(problem: AttentionProblem) -> tuple[Placed, ...]:
    """Where everything is stored, in the kernels' order."""
    inputs = (problem.query, problem.key, problem.value, problem.added or NOWHERE, problem.output)
    if problem.gradient is None:
        return inputs
    made = (problem.of_query, problem.of_key, problem.of_value)
    return (*inputs, problem.gradient, *(place or NOWHERE for place in made))


def _scalars(problem: AttentionProblem) -> tuple[np.generic, ...]:
    _, heads, rows, width = problem.query.shape
    _, groups, keys, value_width = problem.value.shape
    sizes = (rows, keys, width, value_width, heads // groups)
    return integers(*sizes, *(step for place in _places(problem) for step in _steps(place)))


def _steps(place: Placed) -> tuple[int, ...]:
    """Distances of images, heads and rows; 0 along an axis of one that all share."""
    axes = zip(place.shape[:3], place.strides[:3], strict=True)
    return tuple(stride if size > 1 else 0 for size, stride in axes)


def _added_type(problem: AttentionProblem) -> str:
    """The kernels' type of what is added: by truth values, scores are seen or not."""
    return C_TYPES[problem.added_dtype or problem.dtype]


def _sizes(problem: AttentionProblem) -> str:
    """Widths in steps of 32, whether it is causal, and how numbers are added, if any are."""
    widths = [ceiling(place.shape[3], 32) * 32 for place in (problem.query, problem.value)]
    added = 0
    if problem.added is not None:
        in_pairs = not any(step % 2 for step in (*_steps(problem.added), problem.key.shape[2]))
        added = 2 if in_pairs else 1
    return f"{widths[0]}, {widths[1]}, {str(problem.causal).lower()}, {added}"

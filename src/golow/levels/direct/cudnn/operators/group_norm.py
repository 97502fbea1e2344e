"""The sums of group norm and of its gradients, by golow's own kernels."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES, ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import ceiling, power_of_two
from golow.levels.direct.cudnn.shared_kernels.columns import (
    AT_ONCE,
    COLUMNS,
    SECTOR,
    THREADS,
    THREADS_ALONE,
    Sums,
    tiling,
)
from golow.levels.direct.cudnn.shared_kernels.geometry import LARGEST_INT
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.cudnn.steps.sums import launch
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.refusing import refuse_integers
from golow.lower.operators.group_norm import (
    OF_IMAGES,
    OF_VECTORS,
    OF_X,
    GroupMoments,
    GroupNormGradients,
)

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")
EXACT = Layout("float32")

Sizes = tuple[int, int, int]  # images, rows, channels
# Limits of a block that works alone: bytes that its threads read in few rounds, columns whose sums
# it has memory for, and channels of a group, which one thread joins.
MOST_BYTES, MOST_COLUMNS, MOST_OF_GROUP = 64 << 10, 256, 64
VECTOR_BYTES = 16
# Groups of an image that one block joins sooner than a further launch begins.
FEW_GROUPS = 2


def group_moments(build: Builder, arguments: GroupMoments) -> None:
    """Mean and deviation are float32."""
    x = build.values.image(arguments.x)
    sizes = _sizes(x)
    found = [
        build.memory.new(f"{build.current.name}.{i}", build.current.output(0).shape, EXACT)
        for i in (0, 1)
    ]
    alone = moments_of_whole_groups(x.dtype, sizes, arguments.groups, arguments.epsilon)
    if alone is not None:
        build.steps.kernel(alone, [x], found)
    elif arguments.groups <= FEW_GROUPS:
        sums = build.memory.scratch(2 * sizes[0] * sizes[2])
        at_once = moments_of_images(x.dtype, sizes, arguments.groups, arguments.epsilon)
        launch(build, at_once, [x], [*found, sums])
    else:
        sums = build.memory.scratch(2 * sizes[0] * sizes[2])
        launch(build, moments_of_channels(x.dtype, sizes), [x], [sums])
        kernel = moments_of_groups(x.dtype, sizes, arguments.groups, arguments.epsilon)
        build.steps.kernel(kernel, [x, sums], found, touched=(1, 2, 3))
    for index, tensor in enumerate(found):
        build.values.define(index, tensor)


def group_norm_gradients(build: Builder, arguments: GroupNormGradients) -> None:
    """All are float32, each computed in a fixed order."""
    x, outer = build.values.image(arguments.x), build.values.image(arguments.gradient)
    mean, deviation = (build.values.wanted(r, EXACT) for r in (arguments.mean, arguments.deviation))
    sizes = _sizes(x)
    sums = _sums(build, sizes)
    reads, groups, types = [outer, x, mean, deviation], arguments.groups, (outer.dtype, x.dtype)
    found: list[Tensor] = []
    weight: Tensor | None = None
    if any(map(build.current.is_read, OF_X)):
        if arguments.weight is not None:
            weight = build.values.wanted(arguments.weight, EXACT)
        shape = (*x.shape[:2], 1, 1)
        found = [build.memory.new(f"{build.current.name}.{i}", shape, EXACT) for i in OF_X]
    if found and groups <= FEW_GROUPS:
        at_once = gradients_of_images(*types, sizes, groups)
        launch(build, at_once, [*reads, weight], [sums, *found])
    else:
        launch(build, gradients_of_channels(*types, sizes), reads, [sums])
        if found:
            kernel = gradients_of_groups(sizes, groups)
            build.steps.kernel(kernel, [sums, deviation, weight], found)
    for index, tensor in enumerate(found):
        build.values.define(index, tensor)
    for index, part in zip(OF_IMAGES, (sizes[0] * sizes[2], 0), strict=True):
        if build.current.is_read(index):
            offset = part * ITEM_BYTES["float32"]
            shape = build.current.output(index).shape
            build.values.define(index, sums._replace(shape=shape, offset=offset))
    vectors = [
        build.values.result(i, EXACT) if build.current.is_read(i) else None for i in OF_VECTORS
    ]
    if any(vectors):
        build.steps.kernel(gradients_of_vectors(sizes), [sums], vectors)
        for index, result in zip(OF_VECTORS, vectors, strict=True):
            if result is not None:
                build.values.define(index, result)


def _sums(build: Builder, sizes: Sizes) -> Tensor:
    """Memory for two sums of each channel of each image."""
    shape = (2, sizes[0], sizes[2])
    if any(map(build.current.is_read, OF_IMAGES)):
        return build.memory.new(f"{build.current.name}.sums", shape, EXACT)
    return build.memory.scratch(math.prod(shape))


def _sizes(image: Tensor) -> Sizes:
    images, channels, height, width = image.shape
    return images, height * width, channels


# ---------------------------------------------------------------- kernels


def moments_of_whole_groups(
    source: str, sizes: Sizes, groups: int, epsilon: float
) -> Kernel | None:
    """Pointers: x -> means, deviations (float32 [images, channels]), in one launch; None if there
    is too much for the blocks that take a group alone."""
    images, rows, channels = sizes
    item, of_group = ITEM_BYTES[source], channels // groups
    width = math.gcd(channels, VECTOR_BYTES // item)
    whole = math.lcm(width, of_group)  # columns of the fewest groups that are whole vectors
    columns = min(ceiling(SECTOR, whole * item) * whole, channels)
    lanes, tiles = columns // width, ceiling(channels, columns)
    few = columns <= MOST_COLUMNS and of_group <= MOST_OF_GROUP
    if not few or rows * columns * item > MOST_BYTES or images * tiles > LARGEST_INT:
        return None
    walkers = min(THREADS_ALONE // lanes, power_of_two(ceiling(rows, AT_ONCE)))
    if lanes * walkers < columns // of_group:
        return None
    kinds = f"{C_TYPES[source]}, {width}, {THREADS_ALONE}, {MOST_COLUMNS}"
    scalars = (np.int32(of_group), np.int64(rows), np.int64(channels), np.int32(tiles))
    grid, block = (images * tiles, 1, 1), (lanes, walkers, 1)
    expression = f"moments_of_whole_groups<{kinds}>"
    return Kernel(FILE, expression, grid, block, (*scalars, np.float32(epsilon)), code=COLUMNS)


def moments_of_channels(source: str, sizes: Sizes) -> Sums:
    """Pointers: x -> sums (float32 [2, images, channels])."""
    return _of_channels("moments_of_channels", (source,), sizes)


def moments_of_images(source: str, sizes: Sizes, groups: int, epsilon: float) -> Sums:
    """Pointers: x -> means, deviations (float32 [images, channels]), sums (float32 [2, images,
    channels], any content), in one launch."""
    further = (np.int32(sizes[2] // groups), np.float32(epsilon))
    found = _of_channels("moments_of_images", (source,), sizes, further)
    return found._replace(arrivals=sizes[0] + found.arrivals)


def gradients_of_channels(gradient: str, source: str, sizes: Sizes) -> Sums:
    """Pointers: gradient, x, means and deviations (float32 [images, channels]) -> sums (float32
    [2, images, channels])."""
    return _of_channels("gradients_of_channels", (gradient, source), sizes)


def gradients_of_images(gradient: str, source: str, sizes: Sizes, groups: int) -> Sums:
    """Pointers: gradient, x, means and deviations (float32 [images, channels]), weight (float32
    [channels] or absent) -> sums (float32 [2, images, channels]), factors, slopes, offsets (float32
    [images, channels]), in one launch."""
    further = (np.int32(sizes[2] // groups),)
    found = _of_channels("gradients_of_images", (gradient, source), sizes, further)
    return found._replace(arrivals=sizes[0] + found.arrivals)


def _of_channels(
    name: str, types: tuple[str, ...], sizes: Sizes, further: tuple[np.generic, ...] = ()
) -> Sums:
    images, rows, channels = sizes
    tiles = tiling(images, rows, channels, *types)
    kinds = ", ".join(C_TYPES[dtype] for dtype in types)
    scalars = (np.int32(images), np.int64(rows), np.int64(channels), np.int32(tiles.tiles))
    expression = f"{name}<{kinds}, {tiles.width}, {tiles.threads}>"
    return tiles.sums(FILE, expression, (*scalars, *further), outer=images, each=2)


def moments_of_groups(source: str, sizes: Sizes, groups: int, epsilon: float) -> Kernel:
    """Pointers: x, sums -> means, deviations (float32 [images, channels]).

    Raises ValueError for more groups than a launch takes, as `gradients_of_groups` does.
    """
    scalars = (*_of_groups(sizes, groups), np.float32(epsilon))
    return _warps(f"moments_of_groups<{C_TYPES[source]}>", sizes[0] * groups, scalars)


def gradients_of_groups(sizes: Sizes, groups: int) -> Kernel:
    """Pointers: sums, deviations, weight (float32 [channels] or absent) -> factors, slopes, offsets
    (float32 [images, channels])."""
    return _warps("gradients_of_groups", sizes[0] * groups, _of_groups(sizes, groups))


def gradients_of_vectors(sizes: Sizes) -> Kernel:
    """Pointers: sums -> gradients of weight and bias (float32 [channels] or absent)."""
    images, _, channels = sizes
    scalars = (np.int32(images), np.int32(channels))
    grid, block = (ceiling(channels, THREADS), 1, 1), (THREADS, 1, 1)
    return Kernel(FILE, "gradients_of_vectors", grid, block, scalars, code=COLUMNS)


def _of_groups(sizes: Sizes, groups: int) -> tuple[np.generic, ...]:
    images, rows, channels = sizes
    counts = (images * groups, images, channels // groups)
    return (*map(np.int32, counts), np.int64(rows), np.int64(channels))


def _warps(name: str, count: int, scalars: tuple[np.generic, ...]) -> Kernel:
    if count > LARGEST_INT // 32:
        raise ValueError(f"{count} groups; the limit is {LARGEST_INT // 32}")
    grid, block = (ceiling(32 * count, THREADS), 1, 1), (THREADS, 1, 1)
    return Kernel(FILE, name, grid, block, scalars, code=COLUMNS)


def _refuse(arguments: GroupMoments | GroupNormGradients, question: Question) -> str:
    axes = len(question.value(arguments.x).shape)
    if axes != 4:
        return f"{question.node.op} over {axes} axes"
    return refuse_integers(arguments, question)


IMPLEMENTATIONS = (
    Implementation(GroupMoments, group_moments, _refuse),
    Implementation(GroupNormGradients, group_norm_gradients, _refuse),
)

"""Batch norm in training with an activation that oneDNN's primitive lacks, by generated kernels: x
is read twice in each direction, and the activation's argument, which backward computes again, is
never in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.formulas.activation_formulas import derivative_at_argument, value
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.kernels import activated_norm as kernels
from golow.levels.direct.onednn.kernels import moments
from golow.levels.direct.onednn.kernels.elements import Statement, Written, elements, input_name
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.stored_images import as_stored
from golow.levels.direct.onednn.steps.strided_views import seen
from golow.lower.ir.graph import Activation
from golow.lower.operators.batch_norm import BatchNorm, BatchNormBackward
from golow.lower.plan.memory_traffic import SCRATCH

if TYPE_CHECKING:
    from golow.levels.direct.onednn.build.builder import Builder

GRADIENT = "outer_gradient"


class Statistics(NamedTuple):
    """Vectors of the batch's channels."""

    mean: Tensor
    variance: Tensor
    deviation: Tensor


def takes(activation: Activation | None) -> bool:
    """Return True for an activation that only generated kernels compute within the norm."""
    return activation is not None and activation.name != "relu"


def norm(build: Builder, arguments: BatchNorm) -> Statistics:
    """Define the result; return the statistics."""
    x, sizes = as_stored(build, arguments.x)
    channels = x.shape[1]
    images = sizes[0] * sizes[2] // channels
    between = _vector(build, f"{build.current.name}{SCRATCH}", 2 * images * channels)
    build.steps.kernel(moments.of_channels(*sizes), [x], [between])
    found = Statistics(
        *(_vector(build, f"{build.current.name}.{name}", channels) for name in Statistics._fields)
    )
    kernel = kernels.statistics(channels, images, arguments.epsilon)
    build.steps.kernel(kernel, [between], found)
    affine = _affine(build, arguments)
    names = _names(("mean", "deviation", *affine), first=1)
    assert arguments.activation  # noqa: S101 - takes() was asked
    y = build.memory.new(build.current.output_name(0), x.shape, x.layout)
    statements = [
        *_argument(input_name(0), names),
        Statement("result", "float32", value(arguments.activation, "value")),
    ]
    _elements(build, statements, [x], [found.mean, found.deviation, *affine.values()], y)
    build.values.define(0, y)
    return found


def gradients(build: Builder, arguments: BatchNormBackward) -> None:
    """Define the gradients of x, scale and shift."""
    assert arguments.activation  # noqa: S101 - takes() was asked
    x, sizes = as_stored(build, arguments.x)
    outer = build.values.wanted(arguments.gradient, x.layout)
    channels = x.shape[1]
    images, pixels = sizes[0] * sizes[2] // channels, math.prod(x.shape) // channels
    affine = _affine(build, arguments)
    statistics = [build.values.plain(r) for r in (arguments.mean, arguments.inverse_deviation)]
    vectors = [*statistics, *affine.values()]
    parts = [
        _vector(build, f"{build.current.name}.{name}", images * channels)
        for name in ("sums", "sums_normed")
    ]
    gradient = derivative_at_argument(arguments.activation, GRADIENT, "value")
    kernel = kernels.sums(sizes, channels, gradient, "scale" in affine, "shift" in affine)
    build.steps.kernel(kernel, [outer, x, *vectors], parts)
    sums = [_vector(build, build.current.output_name(index), channels) for index in (1, 2)]
    shares = [
        _vector(build, f"{build.current.name}.{name}", channels) for name in ("slope", "offset")
    ]
    build.steps.kernel(kernels.joined_sums(channels, images, pixels), parts, [*sums, *shares])
    inner = build.values.in_place_or_new(arguments.gradient, outer)
    names = _names(("mean", "deviation", *affine, "slope", "offset"), first=2)
    factor = " * ".join(names[name] for name in ("deviation", "scale") if name in names)
    given = derivative_at_argument(arguments.activation, input_name(0), "value")
    statements = [
        *_argument(input_name(1), names),
        Statement("inner", "float32", given),
        Statement(
            "result",
            "float32",
            f"{factor} * (inner - {names['offset']} - normed * {names['slope']})",
        ),
    ]
    _elements(build, statements, [outer, x], [*vectors, *shares], inner)
    for index, tensor in enumerate((inner, *sums)):
        build.values.define(index, tensor)


def _argument(x: str, names: dict[str, str]) -> list[Statement]:
    """The normed x and the argument of the activation, from names of inputs."""
    normed = f"({x} - {names['mean']}) * {names['deviation']}"
    text = kernels.argument("normed", names.get("scale", ""), names.get("shift", ""))
    return [Statement("normed", "float32", normed), Statement("value", "float32", text)]


def _names(vectors: Sequence[str], first: int) -> dict[str, str]:
    """Names of the kernel's inputs for these vectors, of which that is the number of the first."""
    return {name: input_name(index) for index, name in enumerate(vectors, first)}


def _affine(build: Builder, arguments: BatchNorm | BatchNormBackward) -> dict[str, Tensor]:
    """Scale and shift, those that there are."""
    given = {"scale": arguments.scale, "shift": arguments.shift}
    return {name: build.values.plain(item) for name, item in given.items() if item is not None}


def _elements(
    build: Builder,
    statements: Sequence[Statement],
    images: Sequence[Tensor],
    vectors: Sequence[Tensor],
    result: Tensor,
) -> None:
    """Add a kernel that makes the last statement the result. vectors: of the channels."""
    layout = result.layout
    wide = [
        vector._replace(shape=shape, descriptor=Descriptor.plain(shape))
        for vector in vectors
        for shape in [(*vector.shape, *[1] * (len(layout.shape) - 2))]
    ]
    tensors, target = [*images, *wide], seen(result, layout)
    views = [seen(tensor, layout).view for tensor in tensors]
    written = [Written(statements[-1].name, target.view)]
    build.steps.kernel(elements(statements, views, written, target.sizes), tensors, [result])


def _vector(build: Builder, name: str, count: int) -> Tensor:
    return build.memory.new(name, (count,), Descriptor.plain((count,)))

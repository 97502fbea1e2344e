"""SGD with momentum and weight decay: the graph has two nodes for every parameter, the GPU one step
over all of them, after the last gradient."""

from __future__ import annotations

from functools import partial

from golow.levels.vendor.cudnn.builder import Builder, Operator
from golow.levels.vendor.cudnn.kernels.counting import count
from golow.levels.vendor.cudnn.kernels.dropout import advance
from golow.levels.vendor.cudnn.kernels.update import find_nonfinite, next_scale, sgd
from golow.levels.vendor.cudnn.steps import Tensor
from golow.lower.graph import Node


def new_momentum(build: Builder, node: Node) -> None:
    """momentum <- factor momentum + gradient + weight_decay parameter."""
    factor, decay = node.arguments[3:]
    build.update_with(float(factor), float(decay))  # type: ignore[arg-type]


def new_parameter(build: Builder, node: Node) -> None:
    """parameter <- parameter - learning_rate momentum."""
    build.state(node.arguments[2])


def finish(build: Builder) -> None:
    """The steps over whole places: SGD, the next scale of the loss, counters."""
    state = build.training
    scale = build.cell("loss_scale") if build.types.scaled and build.sgd else None
    for group in state.groups if scale else ():
        dtype = state.gradient_type(group)
        check = partial(find_nonfinite, gradient=dtype)
        build.flat("find_nonfinite", check, dtype, f"gradient.{group}", scale)
    for group in state.groups if build.sgd else ():
        _update(build, group, scale)
    if scale:
        build.kernel(next_scale(), [], [scale], "next_scale")
    for name, cell in build.cells.items():
        if name.startswith("dropout"):
            build.kernel(advance(), [], [cell], "advance")
    if build.counted:
        build.flat("count", count, "int64", "counter")


def _update(build: Builder, group: str, scale: Tensor | None) -> None:
    assert build.sgd is not None  # noqa: S101
    momentum, decay = build.sgd
    dtype = build.training.gradient_type(group)
    kernel = partial(
        sgd,
        momentum=momentum,
        weight_decay=decay,
        gradient=dtype,
        copy=build.types.computed,
    )
    flat = [f"{role}.{group}" for role in ("gradient", "master", "momentum")]
    copy = f"copy.{group}" if build.has_place(f"copy.{group}") else None
    build.flat("sgd", kernel, dtype, *flat, build.learning_rate(), scale, copy)


OPERATORS: dict[str, Operator] = {
    "golow.new_momentum": new_momentum,
    "golow.new_parameter": new_parameter,
}

"""SGD with momentum and weight decay. The graph has a node for every parameter; the GPU runs one
step over all of them, after the last gradient."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from golow.levels.vendor.cudnn.builder import Builder, Sgd
from golow.levels.vendor.cudnn.kernels import C_TYPES, Kernel
from golow.levels.vendor.cudnn.kernels.geometry import (
    VECTOR,
    flat,
    require_count,
    require_floating,
    vector,
)
from golow.levels.vendor.cudnn.steps import LOSS_SCALE, Tensor
from golow.levels.vendor.cudnn.training_state import Group, place_of
from golow.levels.vendor.implementation import Implementation, Question
from golow.lower.operators.sgd_update import SgdUpdate

FILE = Path(__file__).with_suffix(".cu")
# The state of loss scaling in device memory; torch.amp.GradScaler starts with a scale of 65536.
SCALER = np.dtype([("scale", np.float32), ("good_steps", np.int32), ("found", np.int32)])


def sgd_update(build: Builder, arguments: SgdUpdate) -> None:
    """Adds no step: `update` handles all parameters."""
    build.sgd = Sgd(arguments.factor, arguments.weight_decay)
    build.state(arguments.learning_rate)


def update(build: Builder, settings: Sgd) -> None:
    """Add the steps over whole places: in float16 the search for gradients that are not finite;
    SGD; in float16 also the next scale of the loss."""
    state = build.training
    scale = build.cell(LOSS_SCALE) if build.types.scaled else None
    for group in state.groups if scale else ():
        dtype = state.gradient_type(group)
        check = partial(find_nonfinite_kernel, gradient=dtype)
        build.flat("find_nonfinite", check, dtype, place_of("gradient", group), scale)
    for group in state.groups:
        _update(build, settings, group, scale)
    if scale:
        build.kernel(next_scale_kernel(), [], [scale], "next_scale")


def _update(build: Builder, settings: Sgd, group: Group, scale: Tensor | None) -> None:
    dtype = build.training.gradient_type(group)
    kernel = partial(
        sgd_kernel,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        gradient=dtype,
        copy=build.types.computed,
    )
    copy = place_of("copy", group)
    build.flat(
        "sgd",
        kernel,
        dtype,
        place_of("gradient", group),
        place_of("master", group),
        place_of("momentum", group),
        build.learning_rate(),
        scale,
        copy if build.has_place(copy) else None,
    )


def _refuse(arguments: SgdUpdate, question: Question) -> str:
    """One step over all parameters needs the same factors for all."""
    others = (SgdUpdate.of(node) for node in question.graph.nodes)
    first = next(other for other in others if other is not None)
    same = ("factor", "weight_decay", "learning_rate")
    differing = [name for name in same if getattr(first, name) != getattr(arguments, name)]
    if differing:
        return f"{question.node.op} whose {differing[0]} differs from one parameter to another"
    return ""


# ---------------------------------------------------------------- kernels


def sgd_kernel(
    count: int,
    momentum: float,
    weight_decay: float,
    gradient: str = "float32",
    copy: str = "float32",
) -> Kernel:
    """Pointers: gradient [count] of the type ``gradient``, parameter and momentum [count]
    (float32), rate (float32 scalar), scaler (`SCALER`) or 0, copy [count] of the type ``copy``
    or 0.

    Parameter and momentum are updated in place, and the copy gets the new parameters. With a
    scaler, gradients are divided by its scale, and nothing is written if it has found one that is
    not finite. Raises ValueError for types that are not floating point.
    """
    require_count(count)
    require_floating(gradient=gradient, copy=copy)
    name = f"sgd<{C_TYPES[gradient]}, {C_TYPES[copy]}>"
    scalars = (np.uint64(count), np.float32(momentum), np.float32(weight_decay))
    return Kernel(FILE, name, *flat(count, 4), scalars, code=VECTOR)


def find_nonfinite_kernel(count: int, gradient: str = "float32") -> Kernel:
    """Pointers: gradient [count] of that type -> scaler; infinity or NaN sets its ``found``."""
    require_count(count)
    require_floating(gradient=gradient)
    each = vector(gradient)
    name = f"find_nonfinite<{C_TYPES[gradient]}, {each}>"
    return Kernel(FILE, name, *flat(count, each), (np.uint64(count),), code=VECTOR)


def next_scale_kernel() -> Kernel:
    """Pointers: scaler. Computes the scale of the next step, after `sgd_kernel`."""
    return Kernel(FILE, "next_scale", (1, 1, 1), (1, 1, 1), code=VECTOR)


IMPLEMENTATIONS = (Implementation(SgdUpdate, sgd_update, _refuse),)

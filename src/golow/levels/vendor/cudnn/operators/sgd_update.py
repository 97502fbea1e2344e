"""SGD with momentum and weight decay: the graph has a node for every parameter, the GPU one step
over all of them, after the last gradient."""

from __future__ import annotations

from functools import partial

from golow.levels.vendor.cudnn.builder import Builder, Sgd
from golow.levels.vendor.cudnn.kernels.update import find_nonfinite, next_scale, sgd
from golow.levels.vendor.cudnn.steps import LOSS_SCALE, Tensor
from golow.levels.vendor.cudnn.training_state import Group, place_of
from golow.levels.vendor.implementation import Implementation, Question
from golow.lower.operators.sgd_update import SgdUpdate


def sgd_update(build: Builder, arguments: SgdUpdate) -> None:
    """No step: `update` does it for all parameters."""
    build.sgd = Sgd(arguments.factor, arguments.weight_decay)
    build.state(arguments.learning_rate)


def update(build: Builder, settings: Sgd) -> None:
    """The steps over whole places: in float16 the search for gradients that are not finite, SGD,
    and the next scale of the loss."""
    state = build.training
    scale = build.cell(LOSS_SCALE) if build.types.scaled else None
    for group in state.groups if scale else ():
        dtype = state.gradient_type(group)
        check = partial(find_nonfinite, gradient=dtype)
        build.flat("find_nonfinite", check, dtype, place_of("gradient", group), scale)
    for group in state.groups:
        _update(build, settings, group, scale)
    if scale:
        build.kernel(next_scale(), [], [scale], "next_scale")


def _update(build: Builder, settings: Sgd, group: Group, scale: Tensor | None) -> None:
    dtype = build.training.gradient_type(group)
    kernel = partial(
        sgd,
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
    """The step over all of them has one set of factors."""
    others = (SgdUpdate.of(node) for node in question.graph.nodes)
    first = next(other for other in others if other is not None)
    same = ("factor", "weight_decay", "learning_rate")
    differing = [name for name in same if getattr(first, name) != getattr(arguments, name)]
    if differing:
        return f"{question.node.op} whose {differing[0]} differs from one parameter to another"
    return ""


IMPLEMENTATIONS = (Implementation(SgdUpdate, sgd_update, _refuse),)

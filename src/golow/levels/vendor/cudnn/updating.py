"""The end of a training step: the graph has a node for the update of every parameter; the GPU runs
one step over all of them, after the last gradient."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from golow.levels.vendor.cudnn.kernels import loss_scale, updates
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.cudnn.steps import LOSS_SCALE, Tensor
from golow.levels.vendor.cudnn.training_state import Group, place_of
from golow.levels.vendor.implementation import Question
from golow.lower.graph import Ref
from golow.lower.operator import Operator
from golow.lower.operators.adam_update import AdamStep
from golow.lower.operators.clip_factor import ClipFactor

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


class Updating:
    """What the update's nodes asked for, and the steps that do it.

    settings: of any parameter, since all have the same. steps, factor: where the number of steps
    and the factor of the gradients are.
    """

    def __init__(self) -> None:
        self.settings: updates.Update | None = None
        self.adam: AdamStep | None = None
        self.steps: Tensor | None = None
        self.clip: ClipFactor | None = None
        self.factor: Tensor | None = None

    def finish(self, build: Builder) -> None:
        """Add the steps over whole places: in float16 the search for gradients that are not finite;
        the factor of gradients that are clipped; the update; in float16 the next loss scale."""
        settings = self.settings
        if settings is None:
            return
        scale = build.cell(LOSS_SCALE) if build.types.scaled else None
        for group in build.training.groups if scale else ():
            dtype = build.training.gradient_type(group)
            check = partial(loss_scale.find_nonfinite, gradient=dtype)
            build.flat("find_nonfinite", check, dtype, place_of("gradient", group), scale)
        self._find_clip(build, scale)
        corrections = self._count_step(build, scale)
        for group in build.training.groups:
            self._update(build, settings, group, corrections, scale)
        if scale:
            build.kernel(loss_scale.next_scale(), [], [scale], "next_scale")

    def _find_clip(self, build: Builder, scale: Tensor | None) -> None:
        if self.clip is None or self.factor is None:
            return
        groups = build.training.groups
        sums = build.new("clip_sums", (updates.BLOCKS * len(groups),), Layout("float32"), "state")
        for index, group in enumerate(groups):
            dtype = build.training.gradient_type(group)
            part = sums._replace(shape=(updates.BLOCKS,), offset=4 * updates.BLOCKS * index)
            squares = partial(updates.squares, gradient=dtype)
            build.flat("squares", squares, dtype, place_of("gradient", group), part)
        kernel = updates.clip_factor(sums.elements, self.clip.norm)
        build.kernel(kernel, [sums, scale], [self.factor], "clip_factor")

    def _count_step(self, build: Builder, scale: Tensor | None) -> Tensor | None:
        if self.adam is None or self.steps is None:
            return None
        corrections = build.new("adam_corrections", (2,), Layout("float32"), "state")
        reads = [build.learning_rate(), scale]
        build.kernel(
            updates.adam_step(self.adam.betas), reads, [self.steps, corrections], "adam_step"
        )
        return corrections

    def _update(
        self,
        build: Builder,
        settings: updates.Update,
        group: Group,
        corrections: Tensor | None,
        scale: Tensor | None,
    ) -> None:
        dtype = build.training.gradient_type(group)
        kernel = partial(
            updates.update, settings=settings, gradient=dtype, copy=build.types.computed
        )
        momentum, square, copy = (place_of(r, group) for r in ("momentum", "square", "copy"))
        build.flat(
            settings.op().removeprefix("golow.").removesuffix("_update"),
            kernel,
            dtype,
            place_of("gradient", group),
            place_of("master", group),
            momentum if build.has_place(momentum) else None,
            square if build.has_place(square) else None,
            build.learning_rate(),
            corrections,
            self.factor,
            scale,
            copy if build.has_place(copy) else None,
        )


def refuse_differing(arguments: Operator, question: Question) -> str:
    """One step over all parameters needs the same settings for all."""
    others = (type(arguments).of(node) for node in question.graph.nodes)
    first = next(other for other in others if other is not None)
    same = msgspec.structs.asdict(arguments)
    own = ("parameter", "gradient", "momentum", "square")
    names = [name for name in same if name not in own]
    differing = [name for name in names if getattr(first, name) != same[name]]
    if differing:
        return f"{question.node.op} whose {differing[0]} differs from one parameter to another"
    return ""


def use(build: Builder, settings: updates.Update, rate: Ref) -> None:
    """Take the settings of one parameter's update, which adds no step of its own."""
    build.updating.settings = settings
    build.state(rate)

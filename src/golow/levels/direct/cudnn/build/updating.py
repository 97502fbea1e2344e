"""Updates: the graph has a node for every parameter; the GPU runs one step over each group of them,
as soon as all its gradients are there. Where the gradients are clipped or their overflow is sought,
it waits for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from golow.levels.direct.cudnn.build.training_state import DIFFERING, Group, place_of
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels import loss_scale, updates
from golow.levels.direct.cudnn.steps.built_plan import LOSS_SCALE, Tensor
from golow.levels.direct.implementation import Question
from golow.lower.ir.operator import Operator
from golow.lower.operators.adam_update import AdamStep
from golow.lower.operators.clip_factor import ClipFactor

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


class Updating:
    """Requests of the update's nodes, and the steps that fulfil them.

    settings: of any parameter of a group, since all have the same. steps, factor: where the number
    of steps and the factor of the gradients are.
    """

    def __init__(self) -> None:
        self.settings: dict[Group, updates.Update] = {}
        self.adam: AdamStep | None = None
        self.steps: Tensor | None = None
        self.clip: ClipFactor | None = None
        self.factor: Tensor | None = None
        self._ready: set[str] = set()
        self._averaged: set[str] = set()
        self._updated: set[Group] = set()
        self._corrections: Tensor | None = None

    def use(self, build: Builder, settings: updates.Update) -> None:
        """Take the settings of one parameter's update. If it is the last of its group, and need not
        wait for other groups, add the group's step."""
        build.inputs.state(settings.learning_rate)
        target = build.current.target_of(settings.parameter)
        self._ready.add(target)
        group = build.training.group_of[target]
        self.settings[group] = settings
        members = build.training.members(group)
        if self.clip is None and not build.types.scaled and self._ready.issuperset(members):
            build.outputs.place_gradients(members)
            self._update(build, group, None)

    def averaged(self, build: Builder, targets: Sequence[str]) -> list[Group]:
        """Take the parameters whose gradients can be averaged over the ranks from now on. Return
        the groups of which these are the last."""
        self._averaged.update(targets)
        groups = dict.fromkeys(build.training.group_of[target] for target in targets)
        members = build.training.members
        return [group for group in groups if self._averaged.issuperset(members(group))]

    def finish(self, build: Builder) -> None:
        """Add the steps over whole places: in float16 the search for gradients that are not finite;
        the factor of gradients that are clipped; the update; in float16 the next loss scale."""
        if not self.settings:
            return
        scale = build.memory.cell(LOSS_SCALE) if build.types.scaled else None
        for group in build.training.groups if scale else ():
            dtype = build.training.gradient_type(group)
            check = partial(loss_scale.find_nonfinite, gradient=dtype)
            place = place_of("gradient", group)
            build.steps.flat("find_nonfinite", check, dtype, place, scale, moves=[place])
        self._find_clip(build, scale)
        for group in build.training.groups:
            if group not in self._updated:
                self._update(build, group, scale)
        if scale:
            build.steps.kernel(loss_scale.next_scale(), [], [scale], "next_scale")

    def _find_clip(self, build: Builder, scale: Tensor | None) -> None:
        if self.clip is None or self.factor is None:
            return
        groups = build.training.groups
        sums = build.memory.new(
            "clip_sums", (updates.BLOCKS * len(groups),), Layout("float32"), "state"
        )
        for index, group in enumerate(groups):
            dtype = build.training.gradient_type(group)
            part = sums._replace(shape=(updates.BLOCKS,), offset=4 * updates.BLOCKS * index)
            squares = partial(updates.squares, gradient=dtype)
            place = place_of("gradient", group)
            build.steps.flat("squares", squares, dtype, place, part, moves=[place])
        kernel = updates.clip_factor(sums.elements, self.clip.norm)
        build.steps.kernel(kernel, [sums, scale], [self.factor], "clip_factor")

    def within(self, build: Builder) -> list[str]:
        """The places of gradients that need memory only until their update. Those that are searched
        or summed as a whole keep their own, whose gaps stay zero."""
        if self.clip is not None or build.types.scaled:
            return []
        return [place_of("gradient", group) for group in build.training.groups]

    def _count_step(self, build: Builder, scale: Tensor | None) -> Tensor | None:
        if self.adam is None or self.steps is None:
            return None
        if self._corrections is not None:
            return self._corrections
        corrections = build.memory.new("adam_corrections", (4,), Layout("float32"), "state")
        build.steps.kernel(
            updates.adam_step(self.adam.betas), [scale], [self.steps, corrections], "adam_step"
        )
        self._corrections = corrections
        return corrections

    def _update(self, build: Builder, group: Group, scale: Tensor | None) -> None:
        self._updated.add(group)
        settings = self.settings[group]
        corrections = self._count_step(build, scale)
        dtype = build.training.gradient_type(group)
        kernel = partial(
            updates.update, settings=settings, gradient=dtype, copy=build.types.computed
        )
        master, momentum, square, copy = (
            place_of(role, group) for role in ("master", "momentum", "square", "copy")
        )
        changed = (master, master, momentum, momentum, square, square, copy)
        build.steps.flat(
            settings.op().removeprefix("golow.").removesuffix("_update"),
            kernel,
            dtype,
            place_of("gradient", group),
            master,
            momentum if build.memory.has_place(momentum) else None,
            square if build.memory.has_place(square) else None,
            build.inputs.state(settings.learning_rate),
            corrections,
            self.factor,
            scale,
            copy if build.memory.has_place(copy) else None,
            reads=[build.training.gradients[target] for target in build.training.members(group)],
            moves=[place for place in changed if build.memory.has_place(place)],
        )


def refuse_differing(arguments: Operator, question: Question) -> str:
    """One step over the parameters of a group needs the same settings for all of them, and the end
    of the step counts once for all groups."""
    others = (type(arguments).of(node) for node in question.graph.nodes)
    first = next(other for other in others if other is not None)
    same = msgspec.structs.asdict(arguments)
    own = ("parameter", "gradient", "momentum", "square", "rate", "root", *DIFFERING)
    names = [name for name in same if name not in own]
    differing = [name for name in names if getattr(first, name) != same[name]]
    if differing:
        return f"{question.node.op} whose {differing[0]} differs from one parameter to another"
    return ""

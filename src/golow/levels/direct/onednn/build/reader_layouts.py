"""Write each result in its consumer's layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.steps.value_views import Folded
from golow.levels.direct.split_axes import Part

if TYPE_CHECKING:
    from golow.levels.direct.onednn.build.builder import Builder


def made_for_reader(build: Builder, shape: tuple[int, ...]) -> Folded:
    """Memory for the result, in the order in which its reader sees it if that is the order of
    whole axes and the columns stay together; otherwise row-major."""
    made = build.memory.new(build.current.output().name, shape, Descriptor.plain(shape))
    steps = Descriptor.plain(shape).strides
    parts = [Part(size, step) for size, step in zip(shape, steps, strict=True)]
    wide = [part for part in parts if part.size > 1]
    rows_major = Folded(made, tuple((part,) if part.size > 1 else () for part in parts))
    joined = rows_major.reshaped(build.current.output().shape)
    if build.current.trains or joined is None:
        return rows_major
    seen = build.views.seen_by_reader(build.current.output().name, joined).parts
    if sorted(seen) != sorted(wide) or not seen or seen[-1].step != 1:
        return rows_major
    new_steps, step = dict[int, int](), 1
    for part in reversed(seen):
        new_steps[part.step] = step
        step *= part.size
    axes = [(Part(p.size, new_steps[p.step]),) if p.size > 1 else () for p in parts]
    return Folded(made, tuple(axes))

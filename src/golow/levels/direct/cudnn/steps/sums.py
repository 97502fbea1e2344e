"""Steps that sum along an axis, for reductions and for the gradients of vectors such as biases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels.columns import Sums
from golow.levels.direct.cudnn.shared_kernels.reduction import reduction
from golow.levels.direct.cudnn.steps.built_plan import ARRIVALS, Tensor
from golow.lower.plan.memory_traffic import SCRATCH

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def add_up(
    build: Builder,
    tensor: Tensor,
    sizes: tuple[int, int, int],
    index: int,
    factor: float = 1.0,
    pitch: int | None = None,
) -> None:
    """Define the current node's value of that index: sums of the tensor, seen as [outer, reduced,
    inner], over its middle axis. The gradient of a bias is float32 for any type of activations.
    pitch: elements from one row to the next, if there are gaps."""
    value = build.current.output(index)
    exact = build.training.is_gradient(value.name) or not value.shape
    dtype = "float32" if exact else tensor.dtype
    result = build.values.result(index, Layout(dtype))
    launch(build, reduction(tensor.dtype, dtype, *sizes, factor, pitch), [tensor], [result])
    build.values.define(index, result)


def launch(
    build: Builder, sums: Sums, reads: Sequence[Tensor | None], writes: Sequence[Tensor | None]
) -> None:
    """Add the kernel as a step, with the memory that it needs. Its counters belong to this step
    alone, so that no launch beside it counts there, too."""
    partial = build.memory.scratch(sums.partial) if sums.partial else None
    arrivals = _counters(build, sums.arrivals) if sums.arrivals else None
    build.steps.kernel(sums.kernel, reads, [*writes, partial, arrivals])


def _counters(build: Builder, count: int) -> Tensor:
    name = f"{build.current.name}.arrivals{SCRATCH}"
    return build.memory.new(name, (count,), Layout("int32"), ARRIVALS)

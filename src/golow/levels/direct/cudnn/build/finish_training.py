"""The end of a training step: steps that need all gradients, and the counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.shared_kernels.counting import count
from golow.levels.direct.cudnn.shared_kernels.dropout import advance_kernel

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def finish(build: Builder) -> None:
    """Update the parameters, advance dropout's random numbers, and count the batches."""
    build.updating.finish(build)
    for cell, tensor in build.memory.cells.items():
        if cell.kind == "dropout":
            build.steps.kernel(advance_kernel(), [], [tensor], "advance")
    if build.counters.counted:
        build.steps.flat("count", count, "int64", "counter")

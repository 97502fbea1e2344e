"""The order of passes of a direct level: a tuple of passes, some of which depend on the workload.

Each level lists two orders, for inference and for training, in its ``passes.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from golow.lower.fuse.gradient_buckets import average_gradients
from golow.lower.fuse.optimizer_updates import append_update
from golow.lower.ir.graph import Pass
from golow.records.workload import Workload


class ByWorkload(NamedTuple):
    """A pass that depends on the workload: on its precision, or its optimizer.

    make: returns the pass for a workload, or None to leave it out.
    """

    make: Callable[[Workload], Pass | None]


Order = tuple[Pass | ByWorkload, ...]


def ordered(order: Order, workload: Workload) -> tuple[Pass, ...]:
    """Return the passes of an order for one workload."""
    made = (entry.make(workload) if isinstance(entry, ByWorkload) else entry for entry in order)
    return tuple(run for run in made if run is not None)


@ByWorkload
def update_parameters(workload: Workload) -> Pass:
    """Add the optimizer's update of each parameter right after its gradient."""
    update = partial(append_update, optimizer=workload.optimizer)
    update.__name__ = append_update.__name__  # type: ignore[attr-defined]
    return update


@ByWorkload
def average_over_ranks(workload: Workload) -> Pass | None:
    """Average the gradients of all ranks, if there are several."""
    if workload.ranks == 1:
        return None
    average = partial(average_gradients, ranks=workload.ranks)
    average.__name__ = average_gradients.__name__  # type: ignore[attr-defined]
    return average

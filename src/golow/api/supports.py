"""The operations of a model that each level supports, for Python users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Unpack

from golow.api.frame import frame
from golow.api.line import about, count, line
from golow.api.options import with_options
from golow.api.progress import shown_progress
from golow.observer import Observer
from golow.programs.explain.explain_record import OperatorSupport, Support
from golow.records.workload import Device, Precision
from golow.worker.cores import default_threads
from golow.workload.request import GraphOptions, Request

if TYPE_CHECKING:
    import pandas
    from torch import Tensor, nn


class SupportResult(NamedTuple):
    """Result of `support`: the record, with methods to print and export it."""

    support: Support

    @property
    def rows(self) -> tuple[OperatorSupport, ...]:
        """The operations: those that a level lacks first, then by number of calls."""
        return self.support.operators

    def table(self, *, every: bool = False) -> None:
        """Print the operations, the levels that run them, and why the others do not. every: also
        list the operations that all levels support."""
        from golow.report.comparison.support import render

        render(self.support, every=every, more="every=True")

    def __repr__(self) -> str:
        return line(self, about(self.support.workload), count(len(self.rows), "operation"))

    def _repr_html_(self) -> str:
        """HTML for a notebook."""
        from golow.report.comparison.support import render
        from golow.report.notebook import as_html

        return as_html(lambda console: render(self.support, console, more="table(every=True)"))

    def to_pandas(self) -> pandas.DataFrame:
        """One row per operation: ``operator``, ``calls``, and a column for each level with the
        reason that it cannot run the operation, empty if it can, None if only an export shows it.
        Needs ``pip install golow[pandas]``."""
        from golow.report.comparison.support import support_rows

        return frame(support_rows(self.support))

    def lacks(self, level: str) -> bool:
        """True if the level cannot run the model, as far as this is known; raises KeyError for a
        level that is not in the result."""
        return self.support.level(level).answer == "lacks"


@with_options(GraphOptions, Request)
def support(
    model: str | nn.Module,
    example_inputs: Tensor | Sequence[Tensor] | None = None,
    *,
    levels: Sequence[str] | None = None,
    device: Device | None = None,
    precision: Precision = "default",
    quiet: bool = False,
    observer: Observer | None = None,
    **workload: Unpack[GraphOptions],
) -> SupportResult:
    """Find the operations of the model that each level supports, without building or running them.
    The workload is as in `compare`. levels: names; by default all that can run in this mode.
    device: only levels that run on this device; by default each level on its own device. Neither a
    GPU nor the levels' libraries are needed. A level answers by operations, shapes and types; its
    library may still refuse a size when it is built, which `compare` shows.

    Raises `GolowError` for errors that the caller can fix. A model that cannot be captured is a
    result.
    """
    from golow.programs.explain.support import support as run

    request = Request(
        model,
        example_inputs,
        threads=default_threads(),
        precision=precision,
        **workload,
    )
    with shown_progress("comparison", observer, quiet) as display:
        return SupportResult(run(request, levels=levels, device=device, observer=display))

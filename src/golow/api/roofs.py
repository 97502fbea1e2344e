"""The steps of a level's plan under the machine's roof, for Python users."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

from golow.api.frame import frame
from golow.api.line import about, line
from golow.api.options import with_options
from golow.api.progress import shown_progress
from golow.observer import Observer
from golow.programs.explain.explain_record import Roof, StepRoof
from golow.records.workload import Device, Precision
from golow.worker.cores import default_threads
from golow.worker.turn import Turn
from golow.workload.request import GraphOptions, Request

if TYPE_CHECKING:
    import pandas
    from torch import Tensor, nn


class RoofResult(NamedTuple):
    """Result of `roof`: the record, with methods to print and export it."""

    roof: Roof

    @property
    def rows(self) -> tuple[StepRoof, ...]:
        """The steps, the largest loss of time first."""
        return self.roof.steps

    def table(self, *, top: int = 15) -> None:
        """Print the first steps, and the bytes moved only to change layouts."""
        from golow.report.comparison.roof import render

        render(self.roof, top, more="top=")

    def __repr__(self) -> str:
        return line(self, about(self.roof.workload), self.roof.level)

    def _repr_html_(self) -> str:
        """HTML for a notebook."""
        from golow.report.comparison.roof import render
        from golow.report.notebook import as_html

        return as_html(lambda console: render(self.roof, console=console, more="table(top=)"))

    def to_pandas(self) -> pandas.DataFrame:
        """One row per step, in seconds and bytes. Needs ``pip install golow[pandas]``."""
        from golow.report.comparison.roof import roof_rows

        return frame(roof_rows(self.roof))


@with_options(GraphOptions, Request)
def roof(
    model: str | nn.Module,
    example_inputs: Tensor | Sequence[Tensor] | None = None,
    *,
    level: str = "vendor",
    threads: int | None = None,
    device: Device = "cpu",
    precision: Precision = "default",
    measure: bool = True,
    time_limit: float = 10.0,
    cache: Path | None = None,
    turn: Turn | None = None,
    gpu: str = "",
    quiet: bool = False,
    observer: Observer | None = None,
    **workload: Unpack[GraphOptions],
) -> RoofResult:
    """Measure the time of each step of a level's plan, and state the least time that it needs.

    The workload is as in `compare`. level: a level that has a plan. measure: check the level, race
    it and time its steps; otherwise only count their bytes and operations. time_limit: seconds of
    the race. turn: place among several that share a GPU. gpu: a known GPU such as h200, even if the
    machine does not have it: its published figures are the roof, and nothing is measured. Raises
    `GolowError` for errors that the caller can fix, and for a level that does not match eager.
    """
    from golow.programs.explain.roof import RoofSettings
    from golow.programs.explain.roof import roof as run

    request = Request(
        model,
        example_inputs,
        threads=default_threads() if threads is None else threads,
        device=device,
        precision=precision,
        **workload,
    )
    settings = RoofSettings(
        level=level, measure=measure, time_limit=time_limit, cache=cache, turn=turn, gpu=gpu
    )
    with shown_progress("comparison", observer, quiet) as display:
        return RoofResult(run(request, settings, display))

"""Audits of choices, as Python users call them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

from golow.api.frame import frame
from golow.api.line import about, count, line
from golow.api.options import with_options
from golow.api.partial import ErrorWithResult, InterruptedWithResult
from golow.api.progress import shown_progress
from golow.programs.auditing import store
from golow.programs.auditing.audit_record import Audit, AuditedLevel
from golow.programs.auditing.observer import AuditObserver
from golow.records.errors import Unfinished
from golow.records.workload import Optimizer, Precision
from golow.storage.scratch import scratch_folder
from golow.worker.cores import default_threads
from golow.worker.time_limits import Limits
from golow.worker.turn import Turn
from golow.workload.request import Request, WorkloadOptions

if TYPE_CHECKING:
    import pandas
    from torch import Tensor, nn


class AuditResult(NamedTuple):
    """Result of `audit`: the record, with methods to print, plot and save it."""

    audit: Audit

    def table(self) -> None:
        """Print the choices that differ between levels, the cost of each, and how to set faster
        ones."""
        from golow.report.audit.table import render

        render(self.audit)

    def __repr__(self) -> str:
        return line(self, about(self.audit.workload), count(len(self.audit.levels), "level"))

    def _repr_html_(self) -> str:
        """HTML for a notebook."""
        from golow.report.audit.table import render
        from golow.report.notebook import as_html

        return as_html(lambda console: render(self.audit, console))

    def to_pandas(self) -> pandas.DataFrame:
        """One row per alternative; times in seconds, sizes in bytes. Needs ``pip install
        golow[pandas]``."""
        from golow.report.audit.export import rows

        return frame(rows(self.audit))

    def report(self, file: str | Path) -> Path:
        """Write one HTML page that shows everything and contains the record."""
        from golow.report.html_report import write_report

        with scratch_folder() as folder:
            return write_report([self.save(folder)], Path(file))

    def save(self, folder: str | Path) -> Path:
        """Write the record and its table into a new folder under this one; returns that folder."""
        from golow.report.audit.export import write_tables

        saved = store.save(self.audit, Path(folder))
        write_tables(self.audit, saved)
        return saved

    def figures(self, folder: str | Path) -> list[Path]:
        """Draw all figures into the folder. Needs ``pip install golow[figures]``."""
        from golow.report.audit.figure import write_figures

        return write_figures(self.audit, Path(folder))

    def level(self, name: str) -> AuditedLevel:
        """Return the record of one level; raises KeyError for one that was not audited."""
        for level in self.audit.levels:
            if level.level == name:
                return level
        raise KeyError(name)


class AuditInterrupted(InterruptedWithResult):
    """Raised after Ctrl-C; ``result`` has the partial results."""

    result: AuditResult


@with_options(WorkloadOptions, Request)
def audit(
    model: str | nn.Module,
    example_inputs: Tensor | Sequence[Tensor] | None = None,
    *,
    levels: Sequence[str] | None = None,
    optimizer: Optimizer | None = None,
    threads: int | None = None,
    precision: Precision = "default",
    quick: bool = False,
    best: bool = False,
    seconds: float = 5.0,
    cache: Path | None = None,
    limits: Limits | None = None,
    turn: Turn | None = None,
    quiet: bool = False,
    observer: AuditObserver | None = None,
    **workload: Unpack[WorkloadOptions],
) -> AuditResult:
    """Try every alternative to the default settings at each level, and measure its effect.

    Workload and levels are as in `compare`; the levels' variants count as choices. quick: try only
    the likeliest choices. best: also search for the best combination of faster choices, and race it
    against the defaults in new processes. seconds: race time per entrant.

    Raises `GolowError` for errors that the caller can fix, `ErrorWithResult` for one after a level
    was audited, and `AuditInterrupted` with partial results on Ctrl-C. A failure of a level or an
    alternative is recorded as its result.
    """
    from golow.programs.auditing.audit import AuditSettings
    from golow.programs.auditing.audit import audit as run

    request = Request(
        model,
        example_inputs,
        optimizer=optimizer or Optimizer(),
        threads=default_threads() if threads is None else threads,
        precision=precision,
        **workload,
    )
    settings = AuditSettings(
        levels=levels,
        quick=quick,
        best=best,
        seconds=seconds,
        cache=cache,
        limits=limits,
        turn=turn,
    )
    with shown_progress("audit", observer, quiet) as display:
        try:
            result = AuditResult(run(request, settings, display))
        except Unfinished as error:
            raise ErrorWithResult(error, AuditResult(error.record)) from error
    if result.audit.interrupted:
        raise AuditInterrupted(result)
    return result


def load_audit(place: str | Path) -> AuditResult:
    """Load the audit in a folder that ``golow audit`` wrote. Raises `GolowError` for any other
    folder."""
    return AuditResult(store.load(Path(place)))

"""Progress for Python users and notebooks, unless they pass ``quiet`` or their own observer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

Program = Literal["comparison", "training", "study", "audit", "generation"]


@contextmanager
def shown_progress(program: Program, observer: Any | None, quiet: bool) -> Iterator[Any]:
    """Return the given observer, or one that draws on standard error, or, if quiet, one that does
    nothing."""
    if observer is not None:
        yield observer
        return
    if quiet:
        yield _silent(program)
        return
    with _display(program) as display:
        yield display


def _silent(program: Program) -> Any:
    from golow.observer import Silent
    from golow.programs.auditing.observer import SilentAudit
    from golow.programs.study.observer import SilentStudy
    from golow.programs.training.observer import SilentTraining

    kinds = {"training": SilentTraining, "study": SilentStudy, "audit": SilentAudit}
    return kinds.get(program, Silent)()


def _display(program: Program) -> Any:
    from golow.report.audit.progress import AuditProgressDisplay
    from golow.report.console import PlainConsole
    from golow.report.progress import ProgressDisplay
    from golow.report.study.progress import StudyProgressDisplay
    from golow.report.training.progress import TrainingProgressDisplay

    kinds = {
        "training": TrainingProgressDisplay,
        "study": StudyProgressDisplay,
        "audit": AuditProgressDisplay,
    }
    return kinds.get(program, ProgressDisplay)(PlainConsole(stderr=True))

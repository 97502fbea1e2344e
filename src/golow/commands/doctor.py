"""``golow doctor``: which levels can run here."""

from __future__ import annotations

from golow.report.console import wide_console


def doctor() -> None:
    """Show which levels can run here, how to install missing packages, which model libraries can be
    imported with this torch, and what may affect timings."""
    from golow.levels.ladder import LADDER
    from golow.measure.environment import environment
    from golow.report.comparison.lists import doctor_report
    from golow.workload.hub.companions import companions

    doctor_report(wide_console(), LADDER, environment(), companions())

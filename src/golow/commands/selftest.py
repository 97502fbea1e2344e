"""``golow selftest``: can you trust timings taken on this machine?"""

from __future__ import annotations

import typer

from golow.report.console import PlainConsole, wide_console


def selftest() -> None:
    """Time workers of known cost to see whether timings on this machine can be trusted.

    It takes less than two minutes on an idle machine. The exit status is 1 when timings cannot be
    trusted.
    """
    from golow.programs.comparison.selftest import selftest as run
    from golow.report.comparison.lists import selftest_report
    from golow.report.progress import ProgressDisplay

    with ProgressDisplay(PlainConsole(stderr=True)) as display:
        result = run(display)
    selftest_report(wide_console(), result)
    raise typer.Exit(0 if result.trusted else 1)

"""``golow models``: the built-in models, two lines each."""

from __future__ import annotations

from golow.report.console import wide_console


def models() -> None:
    """List the built-in models."""
    from golow.models import ZOO
    from golow.report.comparison.lists import models_lines

    console = wide_console()
    for line in models_lines(ZOO):
        console.print(line)

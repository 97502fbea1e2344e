"""``golow models``: the table of built-in models."""

from __future__ import annotations

from golow.report.console import wide_console


def models() -> None:
    """List the built-in models."""
    from golow.models import ZOO
    from golow.report.comparison.lists import models_table

    wide_console().print(models_table(ZOO))

"""``golow levels``: the table of levels."""

from __future__ import annotations

from golow.report.console import wide_console


def levels() -> None:
    """List the levels and their variants, from the most abstract to the lowest."""
    from golow.levels.ladder import LADDER
    from golow.report.comparison.lists import levels_table

    wide_console().print(levels_table(LADDER))

"""``golow levels``: the ladder as a table."""

from __future__ import annotations

from golow.report.console import wide_console


def levels() -> None:
    """List the levels, from the most abstract to the lowest, with their variants."""
    from golow.levels.ladder import LADDER
    from golow.report.comparison.lists import levels_table

    wide_console().print(levels_table(LADDER))

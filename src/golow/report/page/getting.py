"""How to get a level in your own program: a command, or the lines to paste."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import dedent

from golow.records.workload import Workload
from golow.report.audit.facts import alternative_of
from golow.report.audit.setting import pasted
from golow.report.page import blocks
from golow.report.page.blocks import Block
from golow.report.recipes import recipe

WIDTH = 96  # characters of a line to paste


def getting(workload: Workload, level: str) -> Iterator[Block]:
    """The lines for the level of that name; none for one that is not golow's."""
    name, *choices = level.split("+")
    found = recipe(workload, name)
    if found is not None:
        yield blocks.paragraph(found.said)
        yield blocks.code(found.lines)
    alternatives = [one for choice in choices if (one := alternative_of("", choice))]
    chosen = dedent("\n".join(pasted(level, alternatives, WIDTH)))
    if chosen:
        yield blocks.code(chosen)

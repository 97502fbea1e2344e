"""An audit as sections: each level's choices by effect, with the lines to paste."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from golow.programs.auditing.audit_record import Audit, AuditedLevel
from golow.report.audit.facts import faster
from golow.report.audit.setting import best_lines, setting_lines
from golow.report.audit.table import conditions, heading, level_text, price_table
from golow.report.comparison.table import workload_text
from golow.report.page import blocks
from golow.report.page.blocks import Block

WIDTH = 96  # characters of a line to paste


def title(found: Audit) -> str:
    """Title of its page: its subject."""
    return workload_text(found.workload)


def sections(found: Audit, name: str) -> list[Block]:
    """name: prefix of the section's anchor."""
    return [blocks.section(f"{name}-choices", "Settings left at their default", _choices(found))]


def _choices(found: Audit) -> Iterator[Block]:
    yield blocks.paragraph(_summary(found), style="lead")
    _, _, machine = heading(found).partition("\n")
    yield blocks.paragraph(f"{machine}\n{conditions(found)}".strip(), style="note")
    for level in found.levels:
        yield from _level(found, level)
    for note in found.notes:
        yield blocks.paragraph(f"note: {note}", style="note")


def _summary(found: Audit) -> str:
    count = sum(len(level.prices) for level in found.levels)
    better = sum(len(faster(level)) for level in found.levels)
    what = "none is" if not better else f"{better} {'is' if better == 1 else 'are'}"
    return f"{count} alternatives to the defaults were raced; {what} clearly faster."


def _level(found: Audit, level: AuditedLevel) -> Iterator[Block]:
    if not level.prices:
        yield blocks.paragraph(level_text(level))
        return
    yield blocks.table_of(price_table(level), level_text(level))
    lines = [*setting_lines(found, level, WIDTH), *best_lines(found, level, WIDTH)]
    if lines:
        yield blocks.code(textwrap.dedent("\n".join(lines)))

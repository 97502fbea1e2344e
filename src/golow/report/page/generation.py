"""A generation as sections: the levels of each batch size, the time of a token over the length, and
the texts."""

from __future__ import annotations

from collections.abc import Iterator

from golow.programs.generation.generation_record import Generation, TextCase
from golow.report.generation import facts
from golow.report.generation.table import READING, level_table
from golow.report.page import blocks
from golow.report.page.blocks import Block


def title(found: Generation) -> str:
    """Title of its page: its subject."""
    return facts.title(found)


def sections(found: Generation, name: str) -> list[Block]:
    """name: prefix of the sections' anchors."""
    return [blocks.section(f"{name}-texts", "Text generation", _levels(found))]


def _levels(found: Generation) -> Iterator[Block]:
    yield blocks.paragraph(facts.conditions(found), style="note")
    for case in found.cases:
        yield blocks.table_of(level_table(found, case), f"Batch {case.workload.batch}; {READING}")
        if any(run.blocks for run in case.runs):
            yield _curve(case)
    for levels, text in facts.written(found.cases[0]):
        yield blocks.paragraph(f"The text of {levels}", style="caption")
        yield blocks.code(text)
    for remark in facts.remarks(found):
        yield blocks.paragraph(remark, style="note")
    yield blocks.paragraph(facts.proof(found), style="note")


def _curve(case: TextCase) -> Block:
    """The time of a token over the tokens before it, of every level."""
    lines = [
        blocks.line(
            run.level, [(n, 1e3 * seconds) for n, seconds in facts.curve(case, run)], plain=True
        )
        for run in case.runs
        if run.blocks
    ]
    title = f"Time of a token over the length, batch {case.workload.batch}"
    return blocks.chart(title, "tokens before", "ms a token", lines)

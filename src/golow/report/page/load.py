"""A load test as sections: the highest rates and each scenario, with latency over rate."""

from __future__ import annotations

from collections.abc import Iterator

from golow.programs.load.load_record import LoadTest, Timed
from golow.report.load.curves import Point, points
from golow.report.load.facts import rows
from golow.report.load.remarks import remarks
from golow.report.load.table import (
    conditions,
    differences,
    heading,
    level_table,
    peak_table,
    peak_title,
    reasons,
    scenario_table,
    served_table,
    time_text,
)
from golow.report.load.table import (
    title as scenario_title,
)
from golow.report.page import blocks
from golow.report.page.blocks import Block


def title(found: LoadTest) -> str:
    """Title of its page: its subject."""
    return heading(found)


def sections(found: LoadTest, name: str) -> list[Block]:
    """name: prefix of the sections' anchors."""
    return [blocks.section(f"{name}-load", "Which level meets the latency limit?", _load(found))]


def _load(found: LoadTest) -> Iterator[Block]:
    yield blocks.paragraph(heading(found), style="lead")
    yield blocks.paragraph(conditions(found), style="note")
    if any(level.peak for level in found.levels):
        yield blocks.table_of(peak_table(found), peak_title(found))
    for timed in found.plan.timed:
        for share in (found.plan.percentile, 0.5):
            yield from _curve(found, timed, share)
    for scenario in found.plan.scenarios:
        listed = list(rows(found, scenario))
        if listed:
            shown = scenario_table(found.plan, listed)
            yield blocks.table_of(shown, scenario_title(found, scenario))
            yield blocks.table_of(served_table(scenario, listed), "How it was served")
            yield from map(blocks.paragraph, differences(listed))
    yield blocks.table_of(level_table(found), "Levels")
    for reason in reasons(found):
        yield blocks.paragraph(reason)
    for remark in remarks(found):
        yield blocks.paragraph(f"note: {remark}", style="note")


def _curve(found: LoadTest, timed: Timed, share: float) -> Iterator[Block]:
    """A time of requests over their rate, a line per level."""
    lines = []
    for level in found.levels:
        drawn: list[Point] = points(level, share, timed)
        if drawn:
            lines.append(blocks.line(level.label, [(one.rate, 1e3 * one.latency) for one in drawn]))
    if lines:
        text = time_text(timed, share)
        yield blocks.chart(f"Latency, {text}", "requests/s", f"{text} (ms)", lines)

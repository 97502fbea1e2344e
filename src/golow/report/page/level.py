"""One level of a comparison: the distribution of its iterations, its blocks over time, and what
opens below its row."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from statistics import median, quantiles

from golow.compiled.callable_levels import line_to_paste
from golow.levels import ladder
from golow.programs.comparison.figures import percentiles, used_blocks
from golow.programs.comparison.repeat_command import again
from golow.records.comparison import Block as Measured
from golow.records.comparison import Run
from golow.report.page import blocks
from golow.report.page.blocks import DISTURBED, THROTTLED, Block
from golow.report.page.getting import getting
from golow.report.units import seconds_text

LONGEST_LOG = 20_000  # characters
BINS = 24
MANY = 100  # iterations from which on the slowest percent is left out of a distribution


def peek(run: Run) -> list[Block]:
    """Text under the pointer for a level: how its iterations are spread, and its blocks."""
    return [blocks.paragraph(_said(run), style="note"), blocks.side_by_side(_charts(run))]


def details(run: Run) -> Iterator[Block]:
    """All that stands behind a level's row."""
    if run.check.reason:
        yield blocks.paragraph(f"{run.check.verdict}: {run.check.reason}")
    if run.blocks:
        yield blocks.paragraph(_said(run), style="note")
        yield blocks.side_by_side(_charts(run))
    line = line_to_paste(run.workload, run.level)
    if line and run.check.verdict == "match":
        yield blocks.paragraph("How to call it: in a program that has the model and an input.")
        yield blocks.code(line)
    yield from getting(run.workload, run.level)
    levels = dict.fromkeys((ladder.baseline(run.workload.ranks), run.level))
    command = again("compare", run.workload, levels=list(levels))
    if command:
        yield blocks.paragraph("Measure it again:")
        yield blocks.code(command)
    conditions, versions = run.conditions, run.environment.versions
    yield blocks.facts(
        [
            ("threads", str(conditions.threads)),
            ("cores", ", ".join(map(str, conditions.affinity))),
            ("precision", conditions.precision),
            ("loaded at the same time", ", ".join(conditions.resident_with)),
            ("versions", ", ".join(f"{name} {one}" for name, one in sorted(versions.items()))),
            *sorted(run.choices.items()),
        ]
    )
    for note in run.notes:
        yield blocks.paragraph(f"note: {note}", style="note")
    if run.log:
        yield blocks.code(run.log[-LONGEST_LOG:])


def _said(run: Run) -> str:
    """The iterations in numbers."""
    timed = sum(len(_times(block)) for block in run.blocks)
    said = [f"{timed:,} iterations in {len(run.blocks)} blocks"]
    for word, count in (
        (DISTURBED, sum(block.contended for block in run.blocks)),
        (THROTTLED, sum(block.throttled for block in run.blocks)),
    ):
        said += [f"{count} {word}"] if count else []
    said += [f"{one.name} {seconds_text(one.value)}" for one in percentiles(run)]
    return ", ".join(said)


def _charts(run: Run) -> list[Block]:
    return [chart for chart in (_distribution(run), _over_time(run)) if chart is not None]


def _distribution(run: Run) -> Block | None:
    """How many iterations took how long, in the rounds that the time is from; None if all took the
    same."""
    times = sorted(ns / 1e6 for block in used_blocks(run) for ns in _times(block))
    title = "Iterations by their time"
    if len(times) >= MANY:
        times = times[: -(-99 * len(times) // 100)]
        title += "; the slowest 1% are beyond"
    if len(times) < 2 or times[0] == times[-1]:
        return None
    width = (times[-1] - times[0]) / BINS
    edges = [times[0] + number * width for number in range(BINS)] + [times[-1]]
    below = [bisect_right(times, edge) for edge in edges[1:]]
    counts = [after - before for before, after in zip([0, *below], below, strict=False)]
    steps = [
        (edge, float(count))
        for number, count in enumerate(counts)
        for edge in (edges[number], edges[number + 1])
    ]
    filled = [(edge, 0.0, count) for edge, count in steps]
    line = blocks.line(run.level, steps, filled, plain=True)
    return blocks.chart(title, "ms", "iterations", [line], small=True)


def _over_time(run: Run) -> Block | None:
    """The median of each block and the middle half of its iterations, so that drift is seen; None
    without blocks."""
    shown = [(number + 1.0, block) for number, block in enumerate(run.blocks) if _times(block)]
    if not shown:
        return None
    points = [(place, median(_times(block)) / 1e6) for place, block in shown]
    band = [(place, *_middle_half(_times(block))) for place, block in shown]
    marked = {number: why for number, (_, block) in enumerate(shown) if (why := _why(block))}
    line = blocks.line(run.level, points, band, marked)
    hollow = "; hollow: disturbed, square: throttled" if marked else ""
    title = f"Median and middle half of each block{hollow}"
    return blocks.chart(title, "round", "ms", [line], from_zero=False, small=True)


def _times(block: Measured) -> Sequence[int]:
    """Nanoseconds of its iterations by the clock that the figures are from."""
    return block.device_ns or block.host_ns


def _middle_half(times: Sequence[int]) -> tuple[float, float]:
    """Milliseconds at the first and the third quartile."""
    if len(times) < 2:
        return times[0] / 1e6, times[0] / 1e6
    low, _, high = quantiles(times, n=4, method="inclusive")
    return low / 1e6, high / 1e6


def _why(block: Measured) -> str:
    """Why a block is marked; empty for a clean one."""
    words = [DISTURBED] * block.contended + [THROTTLED] * block.throttled
    return " and ".join(words)

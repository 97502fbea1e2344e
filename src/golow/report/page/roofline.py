"""The roofline of a profile: a dot per layer, phase and level below the ceilings of the machine,
and the same in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt

from golow.measure.peak import Peak
from golow.programs.profiling.profile_record import Profile
from golow.programs.profiling.roofline import LevelRoofline, RooflineDot, rooflines
from golow.report.page import blocks
from golow.report.page.blocks import Block
from golow.report.profiling.roofline_table import ABOVE, ceilings, remarks, why_none
from golow.report.units import decimal_text, seconds_text, share_text

SMALLEST, LARGEST = 2.5, 10.0  # pixels: radius of a dot without time, and of the slowest
ROOM = 3.0  # by how much the ceilings go beyond the dots


def blocks_of(found: Profile) -> Iterator[Block]:
    """The chart, the table, and what has no dot."""
    levels = [level for level in rooflines(found) if level.dots]
    if not levels or found.peak is None:
        why = "no layer has a product" if rooflines(found) else why_none(found)
        yield blocks.paragraph(f"No roofline: {why}.", style="note")
        return
    hollow = "; hollow: backward" if found.workload.mode == "train" else ""
    yield blocks.paragraph(
        f"Lines: {ceilings(found.peak)}. Operations and bytes are the least that a layer needs in "
        f"matrix products and convolutions. A dot's area is its share of the level's time{hollow}.",
        style="note",
    )
    most = max(dot.seconds / level.seconds for level in levels for dot in level.dots)
    lines = [*_roof(found.peak, levels), *(_dots(level, most) for level in levels)]
    title, up = "Roofline: operations per second over operations per byte", "operations per second"
    shown = blocks.chart(title, "operations per byte (FLOP/B)", up, lines, from_zero=False)
    yield {**shown, "logAcross": True, "logUp": True}
    yield _table(levels)
    for level in levels:
        for remark in remarks(level):
            yield blocks.paragraph(f"{level.level}: {remark}", style="note")
    if any(dot.share > 1 for level in levels for dot in level.dots):
        yield blocks.paragraph(" ".join(ABOVE.split()), style="note")


def _roof(peak: Peak, levels: Sequence[LevelRoofline]) -> Iterator[Block]:
    """The two ceilings, which meet at the ridge."""
    places = [dot.intensity for level in levels for dot in level.dots]
    ridge = peak.operations / peak.bytes
    left, right = min(*places, ridge) / ROOM, max(*places, ridge) * ROOM
    for name, points in (
        (decimal_text(peak.bytes, "B/s"), [(left, left * peak.bytes), (ridge, peak.operations)]),
        (
            decimal_text(peak.operations, "FLOP/s"),
            [(ridge, peak.operations), (right, peak.operations)],
        ),
    ):
        yield blocks.line(f"peak {name}", points, colour="currentColor", plain=True)


def _dots(level: LevelRoofline, most: float) -> Block:
    """The largest first, so that no dot is hidden under another one."""
    dots = sorted(level.dots, key=lambda dot: -dot.seconds)
    radius = [sqrt(dot.seconds / level.seconds / most) for dot in dots]
    return blocks.dots(
        level.level,
        [(dot.intensity, dot.rate) for dot in dots],
        [SMALLEST + (LARGEST - SMALLEST) * share for share in radius],
        [_said(dot, level) for dot in dots],
        {n: dot.phase for n, dot in enumerate(dots) if dot.phase != "forward"},
    )


def _said(dot: RooflineDot, level: LevelRoofline) -> str:
    return (
        f"{dot.level}: {dot.layer or '(top)'}, {dot.phase}: {decimal_text(dot.rate, 'FLOP/s')} at "
        f"{dot.intensity:.3g} FLOP/B, {share_text(dot.share)} of the {dot.bound} roof; "
        f"{seconds_text(dot.seconds)}, {share_text(dot.seconds / level.seconds)} of the time"
    )


def _table(levels: Sequence[LevelRoofline]) -> Block:
    """Table of every level's layers, the slowest first."""
    columns = [blocks.column(title, number=False) for title in ("layer", "phase", "level")]
    titles = ("time", "share", "FLOP", "FLOP/B", "achieved", "of roof")
    columns += [*map(blocks.column, titles), blocks.column("bound", number=False)]
    found = [(dot, level) for level in levels for dot in level.dots]
    rows = [
        [
            blocks.cell(dot.layer or "(top)"),
            blocks.cell(dot.phase),
            blocks.cell(level.level, colour=blocks.level_colour(level.level)),
            blocks.cell(seconds_text(dot.seconds), dot.seconds),
            blocks.cell(share_text(dot.seconds / level.seconds), dot.seconds / level.seconds),
            blocks.cell(decimal_text(dot.operations, "").strip(), dot.operations),
            blocks.cell(f"{dot.intensity:.3g}", dot.intensity),
            blocks.cell(decimal_text(dot.rate, "FLOP/s"), dot.rate),
            blocks.cell(share_text(dot.share), dot.share),
            blocks.cell(dot.bound),
        ]
        for dot, level in sorted(found, key=lambda pair: -pair[0].seconds)
    ]
    return blocks.table("The share of the roof that each layer reaches", columns, rows)

"""The roofline of a profile as tables: the slowest layers of each level, and the share of the roof
that they reach."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.measure.peak import Peak
from golow.programs.profiling.profile_record import Profile
from golow.programs.profiling.roofline import LevelRoofline, RooflineDot, rooflines
from golow.report.units import decimal_text, seconds_text, share_text

LAYER = 28  # characters


def render_rooflines(profile: Profile, top: int, console: Console) -> None:
    """Print the layers of every level that take the longest, or why there are none."""
    found = rooflines(profile)
    console.print()
    if not found or profile.peak is None:
        console.print(Text(f"No roofline: {why_none(profile)}"))
        return
    console.print(Text("Roofline", style="bold"))
    console.print(
        Text(f"{ceilings(profile.peak)}. Operations and bytes: at the least", style="dim")
    )
    for level in found:
        console.print()
        console.print(
            Text(f"{level.level}: slowest of {len(level.dots)} layers and phases", style="bold")
        )
        console.print(_table(level, top))
        for remark in remarks(level):
            console.print(Text(remark, style="dim"))
    drawn = {level.level for level in found}
    for one in profile.levels:
        if one.level not in drawn and one.layers_missing:
            console.print(Text(f"{one.level} has no roofline: {one.layers_missing}"))
    if any(dot.share > 1 for level in found for dot in level.dots):
        console.print(Text(ABOVE, style="dim"))


ABOVE = (
    "More than 100% of the roof: the machine was busy when its peak was measured, a "
    "layer's inputs were still in the cache, or a fast algorithm needs fewer operations than are "
    "counted. To measure the peak again, remove the folder peak in golow's cache."
)


def why_none(profile: Profile) -> str:
    """Why a profile has no roofline."""
    if not profile.work:
        return "the graph could not be captured, or an earlier golow wrote this profile"
    if profile.peak is None:
        return "the machine's peak could not be measured"
    return "no level has times by layer"


def ceilings(peak: Peak) -> str:
    """Measured peaks of the machine."""
    return (
        f"the machine's measured peaks: {decimal_text(peak.operations, 'FLOP/s')}, "
        f"{decimal_text(peak.bytes, 'B/s')}"
    )


def remarks(level: LevelRoofline) -> Iterator[str]:
    """Shares of the level's time that have no dot."""
    if level.without:
        share = share_text(level.without / level.seconds)
        yield f"{share} of the layers' time is in layers without products or convolutions."
    if level.partial:
        share = share_text(level.partial / level.seconds)
        yield f"{share} of the layers' time is in kernels of no known layer, or of a part of one."


def _table(level: LevelRoofline, top: int) -> Table:
    """The share of time is that of all layers of the level, also of those without a row."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("layer", overflow="fold", max_width=LAYER)
    table.add_column("phase", no_wrap=True)
    for name in ("time", "share", "FLOP", "FLOP/B", "achieved", "of roof"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bound", no_wrap=True)
    ordered = sorted(level.dots, key=attrgetter("seconds"), reverse=True)
    for dot in ordered[:top]:
        table.add_row(*_cells(dot, level.seconds))
    if len(ordered) > top:
        rest = Text(f"and {len(ordered) - top} more", style="dim")
        table.add_row(rest, *[""] * (len(table.columns) - 1))
    return table


def _cells(dot: RooflineDot, seconds: float) -> Iterator[Text]:
    for text in (
        dot.layer or "(top)",
        dot.phase,
        seconds_text(dot.seconds),
        share_text(dot.seconds / seconds),
        decimal_text(dot.operations, ""),
        f"{dot.intensity:.3g}",
        decimal_text(dot.rate, "FLOP/s"),
        share_text(dot.share),
        dot.bound,
    ):
        yield Text(text.strip())

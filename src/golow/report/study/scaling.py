"""How throughput grows with the number of ranks, as tables: a row for each level, a column for each
number."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.levels.ladder import BASELINE, baseline
from golow.report.study.measures import THROUGHPUT, Value, is_baseline
from golow.report.study.planes import place_text
from golow.report.study.rows import SIGNS, StudyRow, has_few_rounds
from golow.report.study.table import FEW
from golow.report.units import rate_text, share_text

APART = ("environment", "device", "model", "mode", "precision", "threads", "resolution", "batch")
SEVERAL = baseline(2)
EXPLAINED = (
    "samples per second, and the efficiency: throughput per rank relative to that of the level's "
    f"fewest ranks, with the ends of both intervals; one rank of {SEVERAL} is {BASELINE}"
)


def render_scaling(rows: Sequence[StudyRow], console: Console) -> None:
    """Print a table for each group of rows that differ only in level and ranks, if there is one
    with several numbers of ranks."""
    groups: dict[tuple[object, ...], list[StudyRow]] = {}
    for row in rows:
        groups.setdefault(tuple(getattr(row, name) for name in APART), []).append(row)
    scaled = [same for same in groups.values() if len({row.ranks for row in same}) > 1]
    for same in scaled:
        first = same[0]
        named = ("model", "mode", "batch", "resolution", "threads", "precision")
        what = ", ".join(place_text(axis, getattr(first, axis)) for axis in named)
        title = f"{what}, on {first.device}: scaling over ranks"
        console.print(Text(title, style="bold"))
        console.print(_table(same))
    if scaled:
        console.print(Text(EXPLAINED, style="dim"))


def _table(rows: Sequence[StudyRow]) -> Table:
    counts = sorted({row.ranks for row in rows})
    of_level: dict[str, dict[int, StudyRow]] = {}
    for row in rows:
        of_level.setdefault(_name(row), {})[row.ranks] = row
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    result.add_column("level", no_wrap=True)
    for count in counts:
        result.add_column(str(count), justify="right", no_wrap=True)
    for level, found in of_level.items():
        measured = [found[count] for count in counts if count in found and _rate(found[count])]
        fewest = measured[0] if measured else None
        result.add_row(level, *(_text(found.get(count), fewest) for count in counts))
    return result


def _name(row: StudyRow) -> str:
    """The level, or for one rank of the baseline the baseline of several."""
    return SEVERAL if is_baseline(row) else row.level


def _rate(row: StudyRow) -> Value | None:
    return None if has_few_rounds(row) else THROUGHPUT.of(row)


def _text(row: StudyRow | None, fewest: StudyRow | None) -> Text:
    """The rate and below it the efficiency, or a sign of why there is none."""
    if row is None:
        return Text("")
    if has_few_rounds(row):
        return Text(FEW)
    rate = _rate(row)
    first = None if fewest is None else _rate(fewest)
    if rate is None:
        return Text(SIGNS[row.outcome], style="dim" if row.outcome == "skipped" else "red")
    if fewest is None or first is None or row is fewest:
        return Text(rate_text(rate.middle))
    ideal = row.ranks / fewest.ranks
    low, high = rate.low / (first.high * ideal), rate.high / (first.low * ideal)
    share = share_text(rate.middle / (first.middle * ideal))
    return Text(f"{rate_text(rate.middle)}\n{share} ({low:.0%}-{high:.0%})")

"""A study as tables of 100 columns at most: the ratio to eager over the grid, its state, lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.programs.study.study_record import STATES
from golow.report.comparison.columns import STYLES
from golow.report.console import wide_console
from golow.report.study.measures import baselines_text, compared_levels, is_baseline
from golow.report.study.planes import Place, Plane, place_text, planes, tick_text
from golow.report.study.rows import SIGNS, Outcome, StudyRow, has_few_rounds
from golow.report.units import bytes_text, seconds_text

if TYPE_CHECKING:
    from golow.programs.study.forecast import Outlook
    from golow.programs.study.study_record import Cell, CellRecord, Study

# The meaning of a sign, for the line below the tables.
MEANINGS: dict[Outcome, str] = {
    "out of memory": "it ran out of memory",
    "skipped": "certain to need more memory than allowed",
    "failed": "failed; the record has the reason",
    "differs": "its numbers are wrong",
    "unavailable": "not available there",
    "not reached": "not timed",
    "measured": "too few rounds for a ratio",
}


UNCLEAR = "?"  # in text, because a dim number looks like any other in a file
FEW = "unclear"  # in place of a number from too few rounds, which is not a result


def render(rows: Sequence[StudyRow], console: Console | None = None) -> None:
    """Print every level's time relative to the baseline, over the grid: below 1 is faster."""
    console = console or wide_console()
    met: set[Outcome] = set()
    unclear = few = False
    for plane in planes(rows):
        what = ", ".join(place_text(axis, place) for axis, place in plane.fixed.items())
        over = baselines_text(plane.rows)
        console.print(
            Text(f"{what}: time relative to {over}, by {plane.y} and {plane.x}", style="bold")
        )
        if len(plane.xs) == 1:
            console.print(_by_level(plane))
        else:
            for level in compared_levels(plane):
                console.print(_of_level(plane, level))
        others = [row for row in plane.rows if not is_baseline(row)]
        met |= {row.outcome for row in plane.rows if row.ratio is None and not has_few_rounds(row)}
        few = few or any(has_few_rounds(row) for row in others)
        unclear = unclear or any(_is_open(row) for row in others)
    if few:
        console.print(Text(f"{FEW}: too few rounds for a conclusion"))
    if unclear:
        console.print(
            Text(f"{UNCLEAR}: unclear; enough rounds, but the interval allows no conclusion")
        )
    for outcome, sign in SIGNS.items():
        if outcome in met:
            console.print(Text(f"{sign}: {MEANINGS[outcome]}", style="dim"))


def _of_level(plane: Plane, level: str) -> Table:
    """One row per place of y and one column per place of x."""
    found = plane.of(level)
    result = _table(level, *(tick_text(plane.x, x) for x in plane.xs))
    for y in plane.ys:
        result.add_row(tick_text(plane.y, y), *(_ratio_text(found.get((x, y))) for x in plane.xs))
    return result


def _by_level(plane: Plane) -> Table:
    """If x has one place: one row per place of y and one column per level, with the baseline's
    time."""
    levels = compared_levels(plane)
    found = {level: plane.of(level) for level in levels}
    baselines = {getattr(row, plane.y): row for row in plane.rows if is_baseline(row)}
    result = _table(plane.y, baselines_text(plane.rows), *levels)
    for y in plane.ys:
        at: tuple[Place, Place] = (plane.xs[0], y)
        cells = (_ratio_text(found[level].get(at)) for level in levels)
        result.add_row(tick_text(plane.y, y), _time_text(baselines.get(y)), *cells)
    return result


def _ratio_text(row: StudyRow | None) -> Text:
    if row is None:
        return Text("")
    if has_few_rounds(row):
        return Text(FEW)
    if row.ratio is None:
        return Text(SIGNS[row.outcome], style="dim" if row.outcome == "skipped" else "red")
    digits = 0 if row.ratio >= 100 else 1 if row.ratio >= 10 else 2
    mark = UNCLEAR if _is_open(row) else ""
    return Text(f"{row.ratio:.{digits}f}{mark}", style=STYLES.get(row.word or "", ""))


def _is_open(row: StudyRow) -> bool:
    """True if enough rounds leave the ratio open."""
    return row.word == "unclear" and not has_few_rounds(row)


def _time_text(row: StudyRow | None) -> Text:
    if row is None or row.time is None:
        return _ratio_text(row)
    return Text(seconds_text(row.time))


# ---------------------------------------------------------------- status


def render_status(
    outlook: Outlook, records: Iterable[CellRecord], console: Console, machine: str
) -> None:
    """Print how many cells are done, failed, skipped and waiting, why, and the remaining time."""
    records = list(records)
    spent = sum(record.seconds for record in records)
    console.print(Text(f"{machine}"))
    console.print(Text(f"{outlook.cells} cells: {counted_states(records)}, {outlook.left} waiting"))
    console.print(Text(f"{seconds_text(spent)} measured; {outlook_text(outlook)}"))
    reasons = Counter((r.state, reason_text(r.reason)) for r in records if r.reason)
    for (state, reason), count in reasons.most_common():
        console.print(Text(f"{state}, {count} time{'s' if count > 1 else ''}: {reason}"))


def counted_states(records: Iterable[CellRecord]) -> str:
    """How many cells are in each state."""
    counts = Counter(record.state for record in records)
    return ", ".join(f"{counts[state]} {state}" for state in STATES)


def to_refine(cells: int) -> str:
    """Why some cells are unclear, and what to do."""
    which = f"{cells} cells have" if cells != 1 else "1 cell has"
    return f"{which} too few rounds for a conclusion; to give more time"


def outlook_text(outlook: Outlook) -> str:
    """The forecast in words."""
    if not outlook.left:
        return "nothing is left to measure"
    guess = " (guesses, until a cell is measured)" if outlook.guessed else ""
    limit = f" of {bytes_text(outlook.limit_bytes)} allowed" if outlook.limit_bytes else ""
    return (
        f"about {seconds_text(outlook.seconds)} left; the largest cell needs about "
        f"{bytes_text(outlook.bytes)}{limit}{guess}"
    )


def list_table(studies: Iterable[tuple[str, Study, str]]) -> Table:
    """One row per study: name, what it measures, and its place or progress."""
    result = _table("study", "measures", "state")
    for column in result.columns:
        column.justify, column.no_wrap = "left", False
    for name, study, state in studies:
        result.add_row(name, study_text(study), state)
    return result


def study_text(study: Study) -> str:
    """Describe a study's cells in one line."""
    axis = study.axis_of_ranks
    axes = [
        _several(study.model, "model"),
        " and ".join(study.mode),
        f"{_several(study.batch, 'batch')}, {_size(study)}",
        *([_several(study.precision, "precision")] if study.precision != ("default",) else []),
        *([_several(study.threads, "threads")] if study.threads else []),
        *_lengths(study),
        *([_several(study.rank_counts, axis)] if study.rank_counts != (1,) else []),
        ", ".join(study.levels),
        f"on {study.device}",
    ]
    return "; ".join(axes)


def cell_text(cell: Cell) -> str:
    """A cell in words: ``resnet50 train, batch 8, 32x32``."""
    parts = [f"{cell.model.rpartition('/')[2]} {cell.mode}", f"batch {cell.batch}"]
    if cell.resolution is not None:
        parts.append(f"{cell.resolution}x{cell.resolution}")
    if cell.input:
        parts.append(cell.input)
    if cell.precision != "default":
        parts.append(cell.precision)
    if cell.generation is not None:
        parts.append(f"{cell.generation.tokens} tokens after {cell.generation.prompt}")
    if cell.threads is not None:
        parts.append(f"{cell.threads} thread{'s' if cell.threads > 1 else ''}")
    if cell.ranks > 1:
        parts.append(f"{cell.ranks} ranks")
    return ", ".join(parts)


def _lengths(study: Study) -> list[str]:
    asked = study.generation
    if asked is None:
        return []
    return [_several(asked.prompt, "prompt"), _several(asked.tokens, "tokens")]


def reason_text(reason: str) -> str:
    """A reason in one line: its beginning and, if a traceback follows, the error."""
    first, *traceback = reason.strip().splitlines()
    if not first.endswith(":"):
        return first
    return f"{first} {traceback[-1].strip()}" if traceback else first.rstrip(":")


def _size(study: Study) -> str:
    return f"input {study.input}" if study.input else _several(study.resolution, "resolution")


def _several(values: Sequence[object], name: str) -> str:
    if isinstance(values, str):
        return f"{name} {values}"
    if not values:
        return f"the models' own {name}"
    if len(values) > 3 and all(isinstance(value, int) for value in values):
        return f"{name} {values[0]} to {values[-1]}"
    return ("" if name == "model" else f"{name} ") + ", ".join(map(str, values))


def _table(*titles: str) -> Table:
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for number, title in enumerate(titles):
        result.add_column(title, justify="right" if number else "left", no_wrap=True)
    return result

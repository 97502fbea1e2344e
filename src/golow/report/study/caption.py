"""The caption of a study's figure: two lines below it, and the details for its metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from golow.measure.words import LEAST_ROUNDS
from golow.report.published import PublishedGrid
from golow.report.study.measures import Measure
from golow.report.study.planes import Plane, place_text
from golow.report.study.rows import StudyRow, has_few_rounds
from golow.report.style import Caption
from golow.storage.shell_words import shell_word

MODES = {"infer": "inference", "train": "training step"}
MOST_NAMED = 6  # inputs or models by name in one sentence


def captions(
    plane: Plane, what: str, how: str, measure: Measure, paper: PublishedGrid | None = None
) -> Caption:
    """The caption of a figure of the plane. what: it shows, in a few words; how: in detail.
    measure: whose intervals are quoted."""
    rows = plane.rows
    models = list(dict.fromkeys(row.model for row in rows))
    name = models[0] if len(models) == 1 else f"{len(models)} models"  # an axis has their names
    lines = [f"{name}, {MODES[rows[0].mode]}: {what}", _where(rows)]
    details = [
        f"{how[:1].upper()}{how[1:]}.",
        f"{_conditions(plane)} {_intervals(plane, measure)}".strip(),
        machine(rows),
        command(rows),
        *([reference(paper)] if paper else []),
        " ".join(_remarks(plane)),
    ]
    return Caption(lines, [text for text in details if text])


def _where(rows: Sequence[StudyRow]) -> str:
    """Where and when, as short as it can be."""
    told = next((row for row in rows if row.torch), rows[0])
    device = (told.gpu if told.device == "cuda" else told.cpu) or told.hardware
    versions = [f"{name} {v}" for name, v in (("torch", told.torch), ("golow", told.golow)) if v]
    days = sorted({row.created[:10] for row in rows})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return "; ".join(text for text in (device, ", ".join(versions), when) if text)


def machine(rows: Sequence[StudyRow]) -> str:
    """GPU, CPU and versions in one sentence; what a skipped cell does not know is taken from
    another cell."""
    told = next((row for row in rows if row.torch), rows[0])
    threads = told.threads_used or told.threads
    cpu = told.cpu or ("" if told.device == "cuda" else told.hardware or "an unknown machine")
    where = [cpu] if cpu else []
    if cpu and len({row.threads for row in rows}) == 1:
        where.append(place_text("threads", threads))
    gpu = f"{told.gpu or told.hardware or 'a GPU'}, driver {told.driver or '?'}"
    parts = [*([gpu] if told.device == "cuda" else []), *([", ".join(where)] if where else [])]
    versions = [
        f"{name} {version}"
        for name, version in (
            ("torch", told.torch),
            ("golow", told.golow),
            ("cuDNN", told.cudnn if told.device == "cuda" else None),
            ("oneDNN (onednn-cpu-gomp)", told.onednn if told.device == "cpu" else None),
        )
        if version
    ]
    return "; ".join([*parts, *([", ".join(versions)] if versions else [])]) + "."


def command(rows: Sequence[StudyRow]) -> str:
    """The command that runs the study."""
    return f"golow study run {shell_word(rows[0].study)} --device {rows[0].device}"


def reference(paper: PublishedGrid) -> str:
    """The source of the reference figures, and where they were measured."""
    names = ", ".join(f"{name} as {level}" for name, level in paper.levels.items())
    return f"2020: {names}, on a {paper.hardware}, {paper.software}; {paper.source}."


# ---------------------------------------------------------------- sentence by sentence


def _conditions(plane: Plane) -> str:
    """Conditions that all cells of the plane share and that are not one of its axes."""
    first = plane.rows[0]
    parts = [f"precision {first.precision}"] if "precision" not in (plane.x, plane.y) else []
    parts += [
        place_text(axis, getattr(first, axis))
        for axis in ("batch", "resolution")
        if axis not in (plane.x, plane.y) or len(plane.places(axis)) == 1
    ]
    inputs = list(dict.fromkeys(row.input for row in plane.rows if row.input))
    if len(inputs) == 1:
        parts.append(f"input {inputs[0]}")
    counts = {row.parameters for row in plane.rows if row.parameters}
    if len(counts) == 1:
        parts.append(f"{counts.pop():,} parameters")
    text = ", ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _intervals(plane: Plane, measure: Measure) -> str:
    """The width of the intervals, for measures that have any."""
    found = [measure.of(row) for row in plane.rows]
    widths = [(v.high - v.low) / v.middle for v in found if v and v.high > v.low]
    if not widths:
        return ""
    return (
        f"95% intervals are {_percent(median(widths))} wide (median), "
        f"{_percent(max(widths))} at most."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%" if share < 0.995 else f"{100 * share:.0f}%"  # never 1e+02%


def _remarks(plane: Plane) -> Iterator[str]:
    """How many cells were not measured, by level and reason."""
    missing = [row for row in plane.rows if row.outcome != "measured"]
    if missing:
        cells = len({row.cell for row in plane.rows})
        outcomes = dict.fromkeys(row.outcome for row in missing)
        told = "; ".join(f"{outcome} {_levels(missing, outcome)}" for outcome in outcomes)
        yield f"Not measured, of {cells} cell{'s' if cells != 1 else ''}: {told}."
    few = sum(has_few_rounds(row) for row in plane.rows)
    if few:
        yield f"Fewer than {LEAST_ROUNDS} rounds: {few} times."
    disturbed = sum(row.rounds_used == "all" for row in plane.rows)
    if disturbed:
        yield f"Too few clean rounds, contended or throttled ones included: {disturbed} times."


def _levels(missing: Sequence[StudyRow], outcome: str) -> str:
    """How often each level has that outcome."""
    counts = Counter(row.level for row in missing if row.outcome == outcome)
    return f"({_some([f'{level} {count}' for level, count in counts.items()])})"


def _some(names: Sequence[str]) -> str:
    """Each name once, or the first ones and the number of the others."""
    found = list(dict.fromkeys(names))
    more = len(found) - MOST_NAMED
    return ", ".join(found[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")

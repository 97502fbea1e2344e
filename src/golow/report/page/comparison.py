"""A comparison as sections: the answer, the ladder, the proof."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.text import Text

from golow.levels import ladder
from golow.programs.comparison.recommended import recommended
from golow.records.comparison import Comparison, Run, TensorError
from golow.report.comparison.advice import advice, offers
from golow.report.comparison.busy import is_busy
from golow.report.comparison.columns import CPU_COLUMNS, Column, all_columns
from golow.report.comparison.gpu import gpu_text, is_on_gpu
from golow.report.comparison.table import conditions, footnotes, workload_text
from golow.report.page import blocks
from golow.report.page.blocks import Block
from golow.report.page.level import details, peek
from golow.report.units import interval_text, joules_text, ratio_text, seconds_text, share_text

_ENERGY = Column("energy", "energy", lambda run: joules_text(run.quantity("energy")), "energy")
MORE = {"energy": _ENERGY, **{one.name: one for one in CPU_COLUMNS}}
"""Columns that the terminal has no room for, at least not for a GPU."""


def title(found: Comparison) -> str:
    """Title of its page: its subject."""
    return workload_text(found.workload)


def sections(found: Comparison, name: str) -> list[Block]:
    """name: prefix of the sections' anchors, unique in the page."""
    return [
        blocks.section(f"{name}-answer", "Answer", _answer(found)),
        blocks.section(f"{name}-ladder", "The ladder", _ladder(found)),
        blocks.section(f"{name}-proof", "Proof", _proof(found)),
    ]


# ---------------------------------------------------------------- answer


def _answer(found: Comparison) -> Iterator[Block]:
    yield blocks.paragraph(advice(found), style="lead")
    for said, recipe in offers(found):
        if said:
            yield blocks.paragraph(said)
        yield blocks.code(recipe.lines)
    yield blocks.paragraph(" ".join([_interval(found), _proved(found), _trust(found)]).strip())
    machine = f"{gpu_text(found)}\n" if is_on_gpu(found) else ""
    yield blocks.paragraph(f"{machine}{conditions(found)}", style="note")
    for note in found.notes:
        yield blocks.paragraph(f"note: {note}", style="note")


def _interval(found: Comparison) -> str:
    """The interval of the fastest level that is proved."""
    best = recommended(found)
    if best is None or best.ratio is None:
        return ""
    low, high = ratio_text(best.ratio.low), ratio_text(best.ratio.high)
    baseline = ladder.baseline(found.workload.ranks)
    return f"{best.level} takes {low} to {high} of {baseline}'s time (95% interval)."


def _proved(found: Comparison) -> str:
    matching = [run for run in found.runs if run.check.verdict == "match"]
    ran = [run for run in found.runs if run.check.verdict != "unavailable"]
    tensors = sum(len(run.check.tensors) for run in matching)
    return (
        f"{len(matching)} of {len(ran)} levels that ran match float64 to within rounding: "
        f"{tensors:,} tensors were checked."
    )


def _trust(found: Comparison) -> str:
    race, throttled = found.race, [run.conditions.throttled_share for run in found.runs]
    text = f"{race.rounds} rounds; {share_text(race.contended_share)} of the blocks were disturbed"
    if any(throttled):
        text += f", up to {share_text(max(throttled))} of a level's were throttled"
    ended = race.stopped_because
    text += {"interval": ".", "interrupted": "; interrupted."}.get(ended, f"; ended by: {ended}.")
    if is_busy(found):
        text += " The machine was busy: treat small differences with care."
    return text


# ---------------------------------------------------------------- ladder


def _ladder(found: Comparison) -> Iterator[Block]:
    columns = _columns(found)
    longest = max((_highest(run) for run in found.runs), default=0.0) or 1.0
    titles = ["level", "check", "time, interval"]
    heads = [blocks.column(title, number=False) for title in titles]
    heads += [
        blocks.column(" ".join(one.label.split()), lead=one.name in ("time", "ratio"))
        for one in columns
    ]
    yield blocks.table(
        "Levels, from the most abstract to the lowest",
        heads,
        (_row(run, columns, longest) for run in found.runs),
        [list(details(run)) for run in found.runs],
        filtered=True,
        cards=True,
    )
    yield blocks.paragraph(
        "On hover or keyboard focus a bar shows the distribution of its iterations and its blocks. "
        "Click a level for everything that was recorded about it.",
        style="note",
    )
    for footnote in footnotes(found):
        yield blocks.paragraph(footnote, style="note")


def _columns(found: Comparison) -> tuple[Column, ...]:
    """The columns of the terminal, and all others for which a level has a figure."""
    shown = all_columns(found)
    names = {column.name for column in shown}
    more = [
        column
        for name, column in MORE.items()
        if name not in names and any(_figure(run, name) is not None for run in found.runs)
    ]
    return (*shown, *more)


def _highest(run: Run) -> float:
    return 0.0 if run.time is None else run.time.high or run.time.value


def _row(run: Run, columns: tuple[Column, ...], longest: float) -> list[Block]:
    colour = blocks.level_colour(run.level)
    cells = [
        blocks.cell(run.level, colour=colour),
        blocks.cell(run.check.word, word=run.check.verdict),
        _bar(run, longest, colour),
    ]
    return cells + [_cell(run, one) for one in columns]


def _bar(run: Run, longest: float, colour: str) -> Block:
    if run.time is None:
        return blocks.cell("", math.inf)
    ends = [run.time.low or run.time.value, run.time.high or run.time.value]
    value, low, high = (number / longest for number in (run.time.value, *ends))
    text = f"{seconds_text(run.time.value)}, {interval_text(run.time)}"
    bar = {"value": value, "low": low, "high": high, "text": text}
    return blocks.cell("", run.time.value, bar=bar, colour=colour, peek=peek(run))


def _cell(run: Run, column: Column) -> Block:
    """The text of the terminal's table, sorted by the figure that it begins with."""
    order = _figure(run, column.name)
    word = run.ratio.word if column.name == "ratio" and run.ratio else ""
    text = Text.assemble(column.cell(run)).plain
    return blocks.cell(text, math.inf if order is None else order, word=word)


def _figure(run: Run, column: str) -> float | None:
    """Sort key of a column; None if the level has no such figure."""
    if column in ("time", "throughput", "percentiles"):
        return run.time.value if run.time else None
    if column == "ratio":
        return run.ratio.value if run.ratio else None
    if column == "payback":
        return run.payback_iterations
    return run.quantity({"memory": "resident"}.get(column, column))


# ---------------------------------------------------------------- proof


def _proof(found: Comparison) -> Iterator[Block]:
    yield blocks.paragraph(
        "Each tensor is compared with the same computation in float64. The bar is its error as a "
        "share of the limit, the worst first; a bar that reaches the line would differ.",
        style="note",
    )
    for run in found.runs:
        if run.check.steps is not None:
            yield blocks.paragraph(f"{run.level}: {run.check.steps.words}.", style="note")
    tensors = [(run, one) for run in found.runs for one in run.check.tensors]
    tensors = tensors or [(run, run.check.worst) for run in found.runs if run.check.worst]
    ordered = sorted(tensors, key=lambda pair: -_share(pair[1]))
    columns = [blocks.column("level", number=False), blocks.column("tensor", number=False)]
    columns += [blocks.column("error against limit", number=False)]
    eagers = f"{ladder.baseline(found.workload.ranks)}'s error"
    columns += [blocks.column(t) for t in ("error", "limit", eagers, "size", "elements")]
    yield blocks.table(
        "Every tensor that was checked",
        [*columns, blocks.column("passed", number=False)],
        (_tensor_row(run, one) for run, one in ordered),
    )


def _share(one: TensorError) -> float:
    if not math.isfinite(one.error):
        return math.inf
    return one.error / one.limit if one.limit else (math.inf if one.error else 0.0)


def _tensor_row(run: Run, one: TensorError) -> list[Block]:
    share, colour = _share(one), blocks.level_colour(run.level)
    shown = min(share, 1.25) / 1.25
    bar = {"value": shown, "low": shown, "high": shown, "limit": 0.8, "text": f"{share:.2g}"}
    numbers = (one.error, one.limit, one.eager_error, one.scale)
    return [
        blocks.cell(run.level, colour=colour),
        blocks.cell(one.name),
        blocks.cell("", min(share, 1e300), bar=bar, colour=colour),
        *(blocks.cell(f"{number:.2e}", number) for number in numbers),
        blocks.cell(f"{one.elements:,}", one.elements),
        blocks.cell("yes" if one.passed else "no", word="match" if one.passed else "differs"),
    ]

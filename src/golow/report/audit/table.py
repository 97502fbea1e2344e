"""An audit as tables of 100 columns at most: the choices that differ, then the price of each one at
every level, how to set what is faster, and what matters nowhere."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from golow.programs.auditing.audit_record import Audit, AuditedLevel, Price
from golow.records.comparison import Run
from golow.report.audit.facts import (
    WORDS,
    change,
    differing,
    is_preliminary,
    maker,
    memory_change,
    ordered,
    shared,
    untried,
    without_effect,
)
from golow.report.audit.setting import best_lines, setting_lines
from golow.report.comparison.columns import STYLES
from golow.report.comparison.gpu import names_text
from golow.report.comparison.table import workload_text
from golow.report.console import WIDTH, fits_folded, visible, wide_console
from golow.report.units import (
    MISSING,
    bytes_change_text,
    change_text,
    interval_text,
    ratio_text,
    seconds_text,
)

FINDING_STYLES = {**STYLES, "refuted": "dim"}
NOT_CONFIRMED = "*: one race only; the second one, in new processes, did not take place"
LONGEST = 60  # characters of a name or a value
LONGEST_REASON = 400


def render(audit: Audit, console: Console | None = None) -> None:
    """Print the audit."""
    console = console or wide_console()
    width = min(WIDTH, console.width)
    console.print(Text(heading(audit), style="bold"))
    console.print(Text(conditions(audit), style="dim"))
    _render_differing(audit, console)
    for level in audit.levels:
        _render_level(audit, level, console, width)
    console.print()
    for paragraph in _paragraphs(audit):
        console.print(Text(paragraph))
    for footnote in _footnotes(audit):
        console.print(Text(footnote, style="dim"))


def heading(audit: Audit) -> str:
    """The workload in one line; on a GPU a second line about it."""
    text = workload_text(audit.workload)
    if audit.workload.device == "cpu":
        return text
    gpus = [gpu for run in _runs(audit) for gpu in run.environment.gpu]
    return f"{text}\non {names_text(gpus)}, precision {audit.workload.precision}"


def conditions(audit: Audit) -> str:
    """Machine, races and what ended them early, in one or two lines."""
    races = [race for level in audit.levels for race in level.races]
    seconds = sum(race.seconds for race in races)
    alternatives = sum(len(level.prices) for level in audit.levels)
    parts = [
        f"{alternatives} alternative{'s' if alternatives != 1 else ''} at "
        f"{len(audit.levels)} level{'s' if len(audit.levels) != 1 else ''}",
        f"{len(races)} race{'s' if len(races) != 1 else ''} of {seconds_text(seconds)} in all",
        "intervals are 95%",
    ]
    lines = ["; ".join(parts)]
    run = next(_runs(audit), None)
    if run is not None:
        threads = f"{run.conditions.threads} thread{'s' if run.conditions.threads != 1 else ''}"
        torch = run.environment.versions.get("torch", "?")
        lines.insert(0, f"{run.environment.cpu_model}, {threads}, torch {torch}")
    if audit.interrupted:
        lines.append("interrupted: partial results")
    return "\n".join(lines)


def _runs(audit: Audit) -> Iterator[Run]:
    return (level.run for level in audit.levels)


# ---------------------------------------------------------------- what differs


def _render_differing(audit: Audit, console: Console) -> None:
    found = differing(audit)
    if not found:
        return
    console.print()
    console.print(Text("Choices that differ between these levels", style="bold"))
    table = _table("choice", "value", "levels")
    for choice, by_value in found.items():
        for number, (value, levels) in enumerate(by_value.items()):
            name = "" if number else choice
            table.add_row(*map(_cell, (name, value)), Text(", ".join(map(visible, levels))))
    console.print(table)


# ---------------------------------------------------------------- a level


def _render_level(audit: Audit, level: AuditedLevel, console: Console, width: int) -> None:
    console.print()
    console.print(Text(level_text(level), style="bold"))
    if level.prices:
        console.print(_fitting(level, console))
    for reason in _reasons(level):
        console.print(Text(reason))
    for title, lines in (
        ("How to set the faster alternatives", setting_lines(audit, level, width)),
        ("The best combination", best_lines(audit, level, width)),
    ):
        shown = list(lines)
        if shown:
            console.print()
            console.print(Text(title, style="bold"))
            console.print(Text("\n".join(shown)), soft_wrap=True)


def level_text(level: AuditedLevel) -> str:
    """The level, its time, and its share of eager's."""
    run = level.run
    if run.check.verdict != "match" or run.time is None:
        reason = run.check.reason[:LONGEST_REASON]
        return f"{level.level}: {run.check.verdict}{': ' if reason else ''}{reason}"
    text = f"{level.level}: {seconds_text(run.time.value)} ({interval_text(run.time)})"
    if run.ratio is not None and level.level != "eager":
        text += f", {ratio_text(run.ratio.value)} of eager's time"
    return text if level.prices else f"{text}; nothing to try"


class _Column(NamedTuple):
    """A column of `price_table`. rank: in which order columns are left out where there is no room,
    the highest first; 0 never is."""

    title: str
    cell: Callable[[AuditedLevel, Price], Text | str]
    rank: int = 0
    justify: JustifyMethod = "left"
    folds: bool = False


COLUMNS = (
    _Column("choice\n+alternative", lambda _, one: _cell(one.choice, f"+{one.alternative}")),
    _Column("made by", lambda _, one: _cell(maker(one) or MISSING), 3, folds=True),
    _Column("now\nalternative", lambda _, one: _cell(one.now or MISSING, one.value), folds=True),
    _Column("time over\ndefault's", lambda _, one: _ratio_text(one), justify="right"),
    _Column("memory\nalloc.", lambda level, one: _memory_text(level, one), 1, "right"),
    _Column("ready", lambda level, one: _ready_text(level, one), 2, "right"),
    _Column("finding\ncheck", lambda _, one: _finding_text(one)),
)


MOST = max(column.rank for column in COLUMNS)


def price_table(level: AuditedLevel, most: int = MOST) -> Table:
    """One row per alternative, the fastest first. most: columns of a higher rank are left out."""
    shown = [column for column in COLUMNS if column.rank <= most]
    table = _table()
    for column in shown:
        table.add_column(
            column.title, justify=column.justify, no_wrap=not column.folds, overflow="fold"
        )
    for price in ordered(level):
        table.add_row(*(column.cell(level, price) for column in shown))
    return table


def _fitting(level: AuditedLevel, console: Console) -> Table:
    """The table without the columns for which the console is too narrow: words stay whole."""
    most, table = MOST, price_table(level)
    while most and not fits_folded(table, console):
        most -= 1
        table = price_table(level, most)
    return table


def _ratio_text(price: Price) -> str:
    ratio = price.effect
    if ratio is None:
        return MISSING
    return f"{ratio_text(ratio.value)}\n{ratio_text(ratio.low)}-{ratio_text(ratio.high)}"


def _memory_text(level: AuditedLevel, price: Price) -> str:
    held = memory_change(level, price.run)
    allocated = change(level, price.run, "allocated_peak")
    if held is None and allocated is None:
        return MISSING
    return f"{bytes_change_text(held[1] if held else None)}\n{bytes_change_text(allocated)}"


def _ready_text(level: AuditedLevel, price: Price) -> str:
    later = change(level, price.run, "ready")
    return MISSING if later is None else change_text(later)


def _finding_text(price: Price) -> Text:
    verdict = Text(price.verdict, style=STYLES[price.verdict])
    if price.effect is None:
        return verdict
    mark = "*" if is_preliminary(price) else ""
    return Text(f"{price.finding}{mark}\n", style=FINDING_STYLES[price.finding]) + verdict


def _reasons(level: AuditedLevel) -> Iterator[str]:
    """Why alternatives have no time, or results beyond the limit."""
    few = [price.alternative for price in ordered(level) if _is_only_untimed(price)]
    if few and level.run.time is not None:
        yield f"too few rounds for {_listed(few)}: allow more seconds per race"
    for price in ordered(level):
        reason = price.run.check.reason[:LONGEST_REASON]
        if price.verdict == "differs":
            yield f"{price.alternative}: differs: it changes results beyond the limit: {reason}"
        elif price.verdict != "match":
            yield f"{price.alternative}: {price.verdict}: {reason}"


def _is_only_untimed(price: Price) -> bool:
    return price.verdict == "match" and price.effect is None


# ---------------------------------------------------------------- all levels


def _paragraphs(audit: Audit) -> Iterator[str]:
    nowhere = without_effect(audit)
    if nowhere:
        yield f"Make no difference at any of these levels: {_listed(nowhere)}."
    everywhere = [f"{name} ({value})" for name, value in shared(audit).items()]
    if everywhere:
        yield f"In effect everywhere, not changed: {_listed(everywhere)}."
    for reason, by_name in untried(audit).items():
        names = [_with_levels(name, levels, audit) for name, levels in by_name.items()]
        yield f"Not tried: {_listed(names)}: {textwrap.shorten(reason, LONGEST_REASON)}"


def _with_levels(name: str, levels: list[str], audit: Audit) -> str:
    everywhere = len(levels) == len(audit.levels)
    return _short(name) if everywhere else f"{_short(name)} (at {', '.join(map(_short, levels))})"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(_short, names))


def _footnotes(audit: Audit) -> Iterator[str]:
    """Meanings of the words in the tables, and notes."""
    prices = [price for level in audit.levels for price in level.prices]
    findings = {price.finding for price in prices if price.effect is not None}
    yield from (f"{word}: {meaning}" for word, meaning in WORDS.items() if word in findings)
    if any(map(is_preliminary, prices)):
        yield NOT_CONFIRMED
    if any(price.verdict == "differs" for price in prices):
        yield "differs: results are beyond the check's limit, so the alternative has no time"
    if any(price.run.memory for price in prices):
        yield "memory, alloc.: bytes held, allocated; ready: time to start; +: more than by default"
    yield from (f"note: {note}" for note in audit.notes)


# ---------------------------------------------------------------- cells


def _table(*titles: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def _cell(*lines: str) -> Text:
    return Text("\n".join(_short(line) for line in lines))


def _short(text: str) -> str:
    plain = visible(" ".join(text.split()))
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 2]}.."

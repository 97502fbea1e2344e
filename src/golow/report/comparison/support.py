"""Which level supports which operations of a model, as a table of 100 columns at most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.programs.comparison.repeat_command import again
from golow.programs.explain.explain_record import LevelSupport, OperatorSupport, Refusal, Support
from golow.report.command import command_lines
from golow.report.comparison.table import workload_text
from golow.report.console import level_text, wide_console

SHOWN = 8
"""Rows of operations that nothing is missing for, unless all are requested."""

LIMIT = (
    "The answers depend on operation, shape and type; a library may still refuse a size when the "
    "level is built."
)

Footnotes = dict[tuple[str, str, int, str, str], list[str]]
"""The levels that refuse for the same reason, by operation and reason, in order of appearance."""


def render(
    support: Support, console: Console | None = None, *, every: bool = False, more: str = "--all"
) -> None:
    """Print the table, the reasons below it, and the command that comes next. every: also all rows
    of operations that no level lacks. more: the option or argument for that."""
    console = console or wide_console()
    console.print(Text(workload_text(support.workload), style="bold"))
    asked = [level for level in support.levels if level.answer in ("runs", "lacks")]
    if support.operators and asked:
        _print_operators(support, asked, console, every, more)
    if support.not_captured and asked:
        console.print(Text(f"{_listed(asked)} need a graph: {support.not_captured}"))
    for text in (*_others(support), *_missing_here(support)):
        console.print(Text(text))
    console.print()
    for text in _next(support, console.width):
        console.print(Text(text, no_wrap=True), soft_wrap=True)


def support_rows(support: Support) -> list[dict[str, str | int | None]]:
    """One row per operation: its name, its calls, and for every level the reasons why it cannot run
    it. The text is empty if it can; None if only an export can tell."""
    return [
        {
            "operator": row.operator,
            "calls": row.calls,
            **{level.level: _reasons(row, level) for level in support.levels},
        }
        for row in support.operators
    ]


def _reasons(row: OperatorSupport, level: LevelSupport) -> str | None:
    if level.answer == "unknown":
        return None
    return "; ".join(refusal.reason for refusal in row.reasons_of(level.level))


# ---------------------------------------------------------------- the table


def _print_operators(
    support: Support, asked: Sequence[LevelSupport], console: Console, every: bool, more: str
) -> None:
    lacking = [row for row in support.operators if row.refusals]
    whole = [row for row in support.operators if not row.refusals]
    shown = whole if every else whole[:SHOWN]
    notes = _footnotes(lacking)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("operator", overflow="fold")
    table.add_column("calls", justify="right")
    for level in asked:
        table.add_column(level_text(level.level))
    for row in (*lacking, *shown):
        cells = (_cell(row, level.level, notes) for level in asked)
        table.add_row(row.operator, str(row.calls), *cells)
    console.print(table)
    if folded := whole[len(shown) :]:
        calls = sum(row.calls for row in folded)
        console.print(Text(f"and {_folded_text(len(folded), calls, asked)}; {more} shows them"))
    for number, (key, levels) in enumerate(notes.items(), 1):
        console.print(Text(f"[{number}] {', '.join(levels)}: {_note(key)}"))
    console.print()
    console.print(Text(LIMIT, style="dim"))


def _folded_text(operators: int, calls: int, asked: Sequence[LevelSupport]) -> str:
    verb = "run" if len(asked) > 1 else "runs"
    return f"{_counted(operators, 'more operator')} ({_counted(calls, 'call')}) that " + (
        f"{_listed(asked)} {verb}"
    )


def _footnotes(rows: Sequence[OperatorSupport]) -> Footnotes:
    found: Footnotes = {}
    for row in rows:
        for refusal in row.refusals:
            found.setdefault(_key(row, refusal), []).append(refusal.level)
    return found


def _key(row: OperatorSupport, refusal: Refusal) -> tuple[str, str, int, str, str]:
    return row.operator, refusal.reason, refusal.calls, refusal.node, refusal.module


def _cell(row: OperatorSupport, level: str, notes: Footnotes) -> Text:
    """``yes``; else ``no``, or how many of the calls the level runs, with the reasons' marks."""
    refusals = row.reasons_of(level)
    if not refusals:
        return Text("yes", style="green")
    order = list(notes)
    marks = ",".join(str(order.index(_key(row, refusal)) + 1) for refusal in refusals)
    runs = row.calls - row.refused[level]
    word = f"{runs} of {row.calls}" if runs else "no"
    return Text(f"{word} [{marks}]", style="red")


def _note(key: tuple[str, str, int, str, str]) -> str:
    """The reason, how often it applies, and the first place; the top of a model has no names."""
    _, reason, calls, node, module = key
    layer = f"layer {module}" if module else "the model's own forward"
    where = f"at node {node}, {layer}" if node else ""
    if calls > 1:
        where = f"{calls} calls, the first {where}" if where else f"{calls} calls"
    return f"{reason} ({where})" if where else reason


# ---------------------------------------------------------------- below the table


def _others(support: Support) -> Iterator[str]:
    """Lines on levels that were not asked by operation."""
    by_answer = {
        answer: [level for level in support.levels if level.answer == answer]
        for answer in ("module", "unknown")
    }
    if whole := by_answer["module"]:
        verb = "runs" if len(whole) == 1 else "run"
        yield f"{_listed(whole)} {verb} the module itself, with every operator of PyTorch."
    if unknown := by_answer["unknown"]:
        verb = "exports" if len(unknown) == 1 else "export"
        yield f"{_listed(unknown)} {verb} the module: only an export shows what is missing."


def _missing_here(support: Support) -> Iterator[str]:
    """Lines on missing parts of this machine, for levels that would run the model."""
    missing: dict[tuple[str, str], list[LevelSupport]] = {}
    for level in support.levels:
        if level.missing and level.answer != "lacks":
            missing.setdefault((level.missing, level.fix), []).append(level)
    for (what, fix), levels in missing.items():
        verb = "do" if len(levels) > 1 else "does"
        yield f"{_listed(levels)} {verb} not run here: {what}{f'; {fix}' if fix else ''}"


def _next(support: Support, width: int) -> Iterator[str]:
    """The command that checks and times the levels that run the model, here or elsewhere."""
    device = support.workload.device
    # without a graph an export fails as well
    failing = ("lacks", "unknown") if support.not_captured else ("lacks",)
    fit = [v for v in support.levels if v.answer not in failing and v.device == device]
    if not fit:
        yield "Next: add the eager level, which runs the module itself."
        return
    ready = [level for level in fit if not level.missing]
    names = [level.level for level in ready or fit]
    where = "" if ready else ", where they run"
    command = again("compare", support.workload, levels=names)
    if command:
        yield f"Next, check and time the remaining levels{where}:"
        yield from command_lines(command, width)
    else:
        quoted = ", ".join(f'"{name}"' for name in names)
        yield f"Next{where}: golow.compare(model, ..., levels=[{quoted}])"


def _listed(levels: Sequence[LevelSupport]) -> str:
    names = [level.level for level in levels]
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"

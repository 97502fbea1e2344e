"""How to set what makes a level faster, in lines to paste, and what it costs elsewhere."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Sequence

from golow.compiled.callable_levels import line_to_paste
from golow.levels.choices import Alternative
from golow.programs.auditing.audit_record import Audit, AuditedLevel, Price
from golow.programs.comparison.repeat_command import again
from golow.records.comparison import Quantity, Ratio, Run
from golow.report.audit.facts import alternative_of, change, choices_by_name, faster, memory_change
from golow.report.command import command_lines
from golow.report.console import visible
from golow.report.recipes import recipe
from golow.report.units import bytes_text, ratio_text, seconds_text

INDENT = 3
LABEL = 8  # columns
NOTABLE = 0.1  # of the level's own figure
NOTABLE_BYTES, NOTABLE_SECONDS = 1 << 20, 0.1


def setting_lines(audit: Audit, level: AuditedLevel, width: int) -> Iterator[str]:
    """Lines for each alternative that makes the level faster."""
    for price in faster(level):
        effect = price.effect
        if effect is not None:
            what = f"{price.alternative} ({price.choice}): {gain(effect, level.run.time)}"
            yield from _wrapped(what, width, "")
        found = alternative_of(price.choice, price.alternative)
        yield from _called(audit, price.run, [found] if found else [], width)
        yield from pasted(level.level, [found] if found else [], width)
        yield from _labelled("note", " ".join(_costs(level, price)), width)
        yield from command_of(audit, [level.level, price.run.level], width)


def best_lines(audit: Audit, level: AuditedLevel, width: int) -> Iterator[str]:
    """Lines for the best combination; none if there is none."""
    best = level.best
    if best is None:
        return
    ratio = best.run.ratio
    if ratio is None:
        yield f"{best.level}: {best.run.check.verdict}: {best.run.check.reason}"
        return
    races = f"{best.steps} race{'s' if best.steps != 1 else ''}"
    yield from _wrapped(
        f"{' + '.join(best.alternatives)}: {gain(ratio, level.run.time)}"
        f" ({ratio_text(ratio.low)}-{ratio_text(ratio.high)}, {ratio.word}), raced "
        f"from the beginning in new processes; the search took {races}",
        width,
        "",
    )
    found = [one for name in best.alternatives if (one := alternative_of("", name))]
    yield from _called(audit, best.run, found, width)
    yield from pasted(level.level, found, width)
    yield from _labelled("note", " ".join(_changes(level, best.run)), width)
    yield from command_of(audit, [level.level, best.level], width)


def gain(ratio: Ratio, time: Quantity | None) -> str:
    """The time that is left, and what is saved of an iteration."""
    text = f"{ratio_text(ratio.value)} of the time"
    if time is None or ratio.value >= 1:
        return text
    saved = time.value * (1 - ratio.value)
    return f"{text}, saves {seconds_text(saved)} of {seconds_text(time.value)} per iteration"


def command_of(audit: Audit, levels: Sequence[str], width: int) -> Iterator[str]:
    """The command that compares these levels on this workload, where a command line can name it."""
    command = again("compare", audit.workload, levels=levels)
    if command:
        yield from command_lines(visible(command), width)


def pasted(level: str, found: Sequence[Alternative], width: int) -> Iterator[str]:
    """A line to paste for each language that the level of that name can be written in."""
    shells = " ".join(text for one in found if (text := _shell(one)))
    yield from _labelled("shell", shells, width)
    in_cpp = level.partition(":")[0].partition("+")[0] == "libtorch"
    for one in found:
        yield from _labelled(
            "C++" if in_cpp else "Python", one.cpp if in_cpp else one.python, width
        )


def _called(audit: Audit, run: Run, found: Sequence[Alternative], width: int) -> Iterator[str]:
    """The line that gives the level in a program of the reader's; none if one of its alternatives
    is neither a variant nor a variable of the environment, which the program gets as well."""
    plain = run.level.partition("+")[0]
    if all(one.variant or (one.environment and one.call is None) for one in found):
        line = line_to_paste(audit.workload, plain)
        yield from _labelled("call", line, width)
        if line:
            return
    base = recipe(audit.workload, plain)
    if base and base.language == "python" and not any(one.variant for one in found):
        for number, text in enumerate(base.lines.splitlines()):
            yield from _labelled(" " if number else "level", text, width)


def _shell(alternative: Alternative) -> str:
    environment = alternative.environment.items()
    return alternative.shell or " ".join(f"{k}={shlex.quote(value)}" for k, value in environment)


def _costs(level: AuditedLevel, price: Price) -> Iterator[str]:
    """Costs elsewhere, possible and measured."""
    choice = choices_by_name().get(price.choice)
    if choice is not None and choice.costs:
        yield f"It may cost {choice.costs}."
    yield from _changes(level, price.run)


def _changes(level: AuditedLevel, run: Run) -> Iterator[str]:
    memory = memory_change(level, run)
    if memory is not None:
        name, size = memory
        own = level.run.quantity(name) or 0.0
        if abs(size) > max(NOTABLE_BYTES, NOTABLE * own):
            more = "more" if size > 0 else "less"
            yield f"It holds {bytes_text(abs(size))} {more} (default: {bytes_text(own)})."
    later, ready = change(level, run, "ready"), level.run.quantity("ready") or 0.0
    if later is not None and abs(later) > max(NOTABLE_SECONDS, NOTABLE * ready):
        word = "later" if later > 0 else "sooner"
        yield f"It is ready {seconds_text(abs(later))} {word} (default: {seconds_text(ready)})."


def _labelled(label: str, text: str, width: int) -> Iterator[str]:
    if text:
        yield from _wrapped(text, width, label)


def _wrapped(text: str, width: int, label: str) -> Iterator[str]:
    first = f"{' ' * INDENT}{label:<{LABEL}}" if label else ""
    return iter(
        textwrap.wrap(
            visible(text),
            width,
            initial_indent=first,
            subsequent_indent=" " * (INDENT + LABEL),
            break_on_hyphens=False,
        )
    )

"""The table of choices, and the page of one."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from golow.levels.choices import Alternative, Choice


def choices_table(choices: Sequence[Choice]) -> Table:
    """One row per choice. Names of choices and alternatives, which are typed, are never broken."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("choice", "decides", "made by", "alternatives"):
        typed = title in ("choice", "alternatives")
        table.add_column(title, no_wrap=typed, overflow="fold")
    for choice in choices:
        others = [f"+{alternative.name}" for alternative in choice.alternatives]
        table.add_row(
            choice.name, choice.summary, choice.made_by, "\n".join(others) or "reported only"
        )
    return table


def choice_page(console: Console, choice: Choice) -> None:
    """Everything about one choice, with the lines that set its alternatives."""
    rows = {
        "made by": choice.made_by,
        "see": choice.where,
        "levels": ", ".join(choice.levels),
        "modes": ", ".join(choice.modes),
        "devices": ", ".join(choice.devices),
        "results": "may change" if choice.changes_results else "stay the same",
        "cost": choice.costs or "none known",
    }
    console.print(f"{choice.name}: {choice.summary}")
    for name, value in rows.items():
        console.print(f"  {name}: {value}")
    for alternative in choice.alternatives:
        console.print(f"\n+{alternative.name}: {alternative.summary}")
        for kind, text in lines_to_paste(alternative).items():
            console.print(f"  {kind}: {text}", soft_wrap=True)
        probe = alternative.probe()
        if not probe.available:
            console.print(f"  not here: {probe.missing}; {probe.fix}")


def lines_to_paste(alternative: Alternative) -> dict[str, str]:
    """The lines that set it in the user's own program, by language."""
    lines = {"shell": alternative.shell, "Python": alternative.python, "C++": alternative.cpp}
    return {kind: text for kind, text in lines.items() if text}

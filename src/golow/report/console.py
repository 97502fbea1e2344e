"""The console for tables, and how a level's name is written in them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

WIDTH = 100
LONGEST_VARIANT = 14
UNLIMITED = 10_000  # columns that no table has
MOST_LINES, LONGEST_LINE = 60, 500  # of a message


class PlainConsole(Console):
    """A console on which the control characters of a text are written out: a name or a message in
    a record cannot steer the terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Return the printed text, in pieces; rich's control codes stay."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def wide_console(most: int = WIDTH, *, stderr: bool = False) -> Console:
    """Standard output, or standard error, as wide as the terminal up to this many columns. In a
    file or a pipe it is as wide as the variable COLUMNS states, 100 columns without it."""
    # markup would remove the brackets of `golow[cudnn]`
    console = PlainConsole(markup=False, stderr=stderr)
    width = console.width if console.is_terminal else _stated_width() or WIDTH
    console.width = min(most, width)
    return console


def _stated_width() -> int:
    """0 if it is not stated. rich's own width is that of the terminal of standard input."""
    stated = os.environ.get("COLUMNS", "")
    return int(stated) if stated.isdecimal() else 0


def fits(table: Table, console: Console) -> bool:
    """True if the console shows every cell of the table whole."""
    unlimited = console.options.update(width=UNLIMITED)
    return table.__rich_measure__(console, unlimited).maximum <= console.width


def fits_folded(table: Table, console: Console) -> bool:
    """True if the console shows every word of the table whole."""
    unlimited = console.options.update(width=UNLIMITED)
    return table.__rich_measure__(console, unlimited).minimum <= console.width


def plain(text: str) -> str:
    """A message for the terminal: as `visible`, and without the end of what is very long."""
    lines = text.split("\n")
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"({len(lines) - MOST_LINES} more lines)"]
    shown = (line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..." for line in lines)
    return visible("\n".join(shown))


def visible(text: str) -> str:
    """The text with control characters written out, except line ends and tabs."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text
    )


def level_text(name: str) -> str:
    """One line for the level and one for the variant; two for a long variant."""
    level, colon, variant = name.partition(":")
    if len(variant) > LONGEST_VARIANT:
        variant = variant.replace("-", "-\n  ", 1)
    return f"{level}\n :{variant}" if colon else level

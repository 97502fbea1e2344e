"""The console that tables are printed on, and how a level's name stands in them."""

from __future__ import annotations

from rich.console import Console

WIDTH = 100
LONGEST_VARIANT = 14


def wide_console() -> Console:
    """Standard output: as wide as the terminal but 100 columns at most, and 100 in a file."""
    console = Console(markup=False)  # else `golow[cudnn]` would lose what is in brackets
    console.width = min(WIDTH, console.width) if console.is_terminal else WIDTH
    return console


def level_text(name: str) -> str:
    """A line for the level and one for the variant; of a long one two."""
    level, colon, variant = name.partition(":")
    if len(variant) > LONGEST_VARIANT:
        variant = variant.replace("-", "-\n  ", 1)
    return f"{level}\n :{variant}" if colon else level

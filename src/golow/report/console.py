"""The console for tables, and how a level's name is written in them."""

from __future__ import annotations

from rich.console import Console

WIDTH = 100
LONGEST_VARIANT = 14


def wide_console() -> Console:
    """Standard output, as wide as the terminal up to 100 columns; 100 columns in a file."""
    console = Console(markup=False)  # markup would remove the brackets of `golow[cudnn]`
    console.width = min(WIDTH, console.width) if console.is_terminal else WIDTH
    return console


def plain(text: str) -> str:
    """The text with control characters written out, so that a name cannot steer the terminal."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text
    )


def level_text(name: str) -> str:
    """One line for the level and one for the variant; two for a long variant."""
    level, colon, variant = name.partition(":")
    if len(variant) > LONGEST_VARIANT:
        variant = variant.replace("-", "-\n  ", 1)
    return f"{level}\n :{variant}" if colon else level

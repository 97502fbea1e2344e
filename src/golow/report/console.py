"""The console that tables are printed on."""

from __future__ import annotations

from rich.console import Console

WIDTH = 100


def wide_console() -> Console:
    """Standard output: as wide as the terminal but 100 columns at most, and 100 in a file."""
    console = Console()
    console.width = min(WIDTH, console.width) if console.is_terminal else WIDTH
    return console

"""A command to paste, over as many lines as it needs."""

from __future__ import annotations

import re

INDENT = 3
WORD = re.compile(r"--[\w-]+ (?!-)(?:'[^']*'|\S)+|(?:'[^']*'|\S)+")
"""A word of a command, quoted or not; an option and its value stay together."""


def command_lines(command: str, width: int) -> list[str]:
    """The command, so that a shell takes it as it stands on the screen."""
    lines: list[str] = []
    for word in WORD.findall(command):
        if lines and len(lines[-1]) + len(word) + 3 <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(" " * (INDENT + (2 if lines else 0)) + word)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]

"""Paths in the commands that golow prints, written so that a shell takes the line as it is."""

from __future__ import annotations

import shlex
from pathlib import Path


def shell_word(path: str | Path) -> str:
    """The path as one word of a command: quoted if it has blanks and the like, and below ``./`` if
    it begins with a dash, which a command would take for an option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)

"""The known names nearest to a misspelt one, for the hint of an error."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MOST, ALIKE = 2, 0.5  # names, and the least share of equal letters


def meant(name: str, known: Iterable[str]) -> str:
    """The question that a hint begins with, ``did you mean A or B? ``; empty if no name is near."""
    near = get_close_matches(name, [*known], n=MOST, cutoff=ALIKE)
    return f"did you mean {' or '.join(near)}? " if near else ""

"""The answer to the question "can this level run here?"."""

from __future__ import annotations

from typing import NamedTuple


class Probe(NamedTuple):
    """Availability of a level here; if it is missing something, that and the command that fixes
    it."""

    available: bool
    missing: str = ""
    fix: str = ""

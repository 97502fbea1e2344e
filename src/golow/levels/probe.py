"""The answer to the question "can this level run here?"."""

from __future__ import annotations

from typing import NamedTuple


class Probe(NamedTuple):
    """Whether a level can run here; if not, what is missing and the command that fixes it."""

    available: bool
    missing: str = ""
    fix: str = ""

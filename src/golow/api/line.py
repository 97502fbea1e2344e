"""A result in one line, as a Python prompt shows it: the fields of a record would fill pages."""

from __future__ import annotations

from golow.records.workload import Workload
from golow.report.console import visible

MODES = {"infer": "inference", "train": "training step"}


def line(result: object, *said: str) -> str:
    """Return the result's name and its facts."""
    return visible(f"<golow.{type(result).__name__}: {', '.join(said)}>")


def about(workload: Workload) -> str:
    """Return a short description of the workload."""
    return f"{workload.model}, {MODES[workload.mode]}, batch {workload.batch}"


def count(number: int, what: str) -> str:
    """1 level, 2 levels"""
    return f"{number} {what}{'s' if number != 1 else ''}"

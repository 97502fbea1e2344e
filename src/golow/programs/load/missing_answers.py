"""Missing answers: the part of the check that all kinds of samples share."""

from __future__ import annotations

from collections.abc import Sequence

from golow.records.comparison import Check

SHOWN = 3  # samples that a verdict names


def missing(answers: Sequence[tuple[int, bytes]], count: int) -> Check | None:
    """Return the verdict if any of this many samples has no answer, otherwise None."""
    absent = sorted(set(range(count)) - {index for index, _ in answers})
    if not absent:
        return None
    listed = ", ".join(map(str, absent[:SHOWN]))
    reason = f"{len(absent)} of {count} answers are missing, such as of sample {listed}"
    return Check(verdict="differs", reason=reason)

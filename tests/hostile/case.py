"""One hostile input, how golow took it, and what is wrong with that."""

from __future__ import annotations

from pathlib import Path

import msgspec

MOST_BYTES = 4 << 30
TRACEBACK = "Traceback (most recent call last)"
CODE_RAN = "code-ran"
"""The file that hostile code would write into the case's folder."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What golow is given.

    title: what is hostile. folder: the case's own, where golow runs. arguments: of ``golow``; or
    code: Python that calls golow's API instead. statuses: those that are right. says: what the
    message contains. without_power: without the superuser's permissions.
    """

    title: str
    folder: str
    arguments: tuple[str, ...] = ()
    code: str = ""
    statuses: tuple[int, ...] = (2,)
    says: str = ""
    without_power: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How golow took it. status: negative for a signal, None if it took too long. peak_bytes: the
    largest resident set of the process and its children."""

    status: int | None
    seconds: float
    peak_bytes: int
    output: str
    error: str


def faults(case: Case, outcome: Outcome) -> list[str]:
    """What is wrong with the outcome; empty if golow took the case as it promises."""
    found = []
    said = outcome.output + outcome.error
    if outcome.status is None:
        found.append(f"it hangs: not done after {outcome.seconds:.0f} s")
    elif outcome.status not in case.statuses:
        found.append(f"status {outcome.status}, not {' or '.join(map(str, case.statuses))}")
    if TRACEBACK in said:
        found.append("a traceback")
    if outcome.status not in (0, None) and not said.strip():
        found.append("no message")
    if outcome.peak_bytes > MOST_BYTES:
        found.append(f"{outcome.peak_bytes / 2**30:.1f} GiB of memory")
    if any(not (c.isprintable() or c in "\n\t") for c in said):
        found.append("raw control characters in what it prints")
    if outcome.status is not None and case.says not in said:
        found.append(f"it does not say {case.says!r}")
    for page in (*Path(case.folder).rglob("*.html"), *Path(case.folder).rglob("*.svg")):
        if b"<script>alert" in page.read_bytes():
            found.append(f"unescaped HTML in {page.name}")
    if (Path(case.folder) / CODE_RAN).exists():
        found.append("it ran code from the file")
    return found

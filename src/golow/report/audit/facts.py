"""Orders, groups and look-ups that an audit's tables and figures share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

from golow.levels.choices import Alternative, Choice, all_choices, find
from golow.programs.auditing.audit_record import Audit, AuditedLevel, Price
from golow.records.comparison import Run

MEMORY = ("device_used", "device_added", "resident")
"""Kinds of memory by which an alternative is judged: the first that was measured."""

WORDS = {
    "faster": "it takes less time than the default, by more than 1%, in both of two races",
    "slower": "it takes more time than the default, by more than 1%, in both of two races",
    "same": "the whole interval is within 2% of the default's time",
    "refuted": "a first race called it faster or slower; a second one, in new processes, did not",
    "unclear": "the interval is too wide, or the effect may be chance among so many comparisons",
}
"""Meaning of each finding."""


@cache
def choices_by_name() -> Mapping[str, Choice]:
    """The choices that this golow knows. A record may have others."""
    return {choice.name: choice for choice in all_choices()}


def maker(price: Price) -> str:
    """Who makes the choice by default; empty if this golow does not know it."""
    known = choices_by_name().get(price.choice)
    return known.made_by if known else ""


def alternative_of(choice: str, name: str) -> Alternative | None:
    """The alternative of that name of that choice, any choice's if the name of the choice is empty;
    None if this golow does not know it."""
    return next((f.alternative for f in find(name) if choice in ("", f.choice.name)), None)


def ordered(level: AuditedLevel) -> list[Price]:
    """Its prices by effect, the fastest first; those without a time last."""
    return sorted(
        level.prices,
        key=lambda price: (price.effect.value if price.effect else math.inf, price.alternative),
    )


def is_preliminary(price: Price) -> bool:
    """True if a second race should have followed, and did not: the audit was interrupted."""
    return price.finding in ("faster", "slower") and price.confirmed is None


def faster(level: AuditedLevel) -> list[Price]:
    """The alternatives that make the level faster and compute the same."""
    found = [price for price in ordered(level) if price.finding == "faster"]
    return [price for price in found if price.verdict == "match"]


def memory_change(level: AuditedLevel, run: Run) -> tuple[str, float] | None:
    """Bytes that this run holds in addition to the level's, and the figure that shows it."""
    for name in MEMORY:
        own, other = level.run.quantity(name), run.quantity(name)
        if own is not None and other is not None:
            return name, other - own
    return None


def change(level: AuditedLevel, run: Run, name: str) -> float | None:
    """How much more of a figure this run has than the level's, in its unit."""
    own, other = level.run.quantity(name), run.quantity(name)
    return None if own is None or other is None else other - own


def differing(audit: Audit) -> dict[str, dict[str, list[str]]]:
    """The choices that differ between the levels: the levels of each value, by choice."""
    return {name: by_value for name, by_value in _in_force(audit).items() if len(by_value) > 1}


def shared(audit: Audit) -> dict[str, str]:
    """The value of each choice that is the same everywhere and has no price."""
    priced = {price.choice for level in audit.levels for price in level.prices}
    return {
        name: next(iter(by_value))
        for name, by_value in _in_force(audit).items()
        if len(by_value) == 1 and name not in priced
    }


def _in_force(audit: Audit) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for level in audit.levels:
        for one in level.in_force:
            found.setdefault(one.choice, {}).setdefault(one.value, []).append(level.level)
    return dict(sorted(found.items()))


def without_effect(audit: Audit) -> list[str]:
    """The choices of which every alternative is the same as the default, at every level."""
    findings: dict[str, set[str]] = {}
    for level in audit.levels:
        for price in level.prices:
            known = price.finding if price.verdict == "match" else price.verdict
            findings.setdefault(price.choice, set()).add(known)
    return sorted(name for name, found in findings.items() if found == {"same"})


def untried(audit: Audit) -> dict[str, dict[str, list[str]]]:
    """Alternatives that were not tried: the levels of each, by reason."""
    found: dict[str, dict[str, list[str]]] = {}
    for level in audit.levels:
        for one in level.untried:
            found.setdefault(one.reason, {}).setdefault(one.alternative, []).append(level.level)
    return found

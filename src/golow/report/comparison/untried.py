"""Choices that a comparison did not try, found from the record alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from golow.levels.choices import all_choices
from golow.levels.ladder import BASELINE, BASELINE_OF_RANKS
from golow.programs.comparison.repeat_command import again
from golow.records.comparison import Comparison, Run

MOST_NAMES = 4


def untried_advice(comparison: Comparison, runs: Sequence[Run]) -> list[str]:
    """A sentence on the likeliest choices of these levels that the comparison did not try, and the
    command that does; none if there are none.

    It does not try them itself, which would make every comparison several times as long.
    """
    left: dict[str, list[str]] = {}
    for run in runs:
        level = _parts(run.level)[0]
        if level not in (BASELINE, BASELINE_OF_RANKS):
            left.setdefault(level, _untried(run, comparison))
    levels = [level for level in left if left[level]]
    if not levels:
        return []
    names = list(dict.fromkeys(name for level in levels for name in left[level]))
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    command = again("audit", comparison.workload, "--quick", levels=levels)
    quoted = ", ".join(f'"{level}"' for level in levels)
    how = f"`{command}`" if command else f"golow.audit(model, ..., levels=[{quoted}], quick=True)"
    return [
        f"Not tried: choices other than the defaults at {_listed(levels)}, which can be the reason "
        f"({_listed([*names[:MOST_NAMES], *more])}). {how} tries them."
    ]


def _untried(run: Run, comparison: Comparison) -> list[str]:
    """The likeliest choices of the level of which no alternative took part."""
    level, workload = _parts(run.level)[0], run.workload
    same = (_parts(other.level) for other in comparison.runs)
    tried = {name for first, *names in same if first == level for name in names}
    return [
        choice.name
        for choice in all_choices()
        if choice.likely
        and any(
            alternative.name not in tried and run.choices.get(choice.name) != alternative.value
            for alternative in choice.offered(level, workload.mode, workload.device)
        )
    ]


def _parts(level: str) -> list[str]:
    """The level, its variant and its alternatives."""
    return re.split("[:+]", level)


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)

"""Which alternatives an audit tries at a level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from golow.levels.choices import Alternative, Choice, all_choices
from golow.levels.ladder import ChosenLevel
from golow.programs.auditing.audit_record import Untried
from golow.records.errors import GolowError
from golow.records.workload import Workload


class Candidate(NamedTuple):
    """A level with one alternative, and the choice and alternative that make it."""

    level: ChosenLevel
    choice: Choice
    alternative: Alternative


def candidates(
    level: ChosenLevel, workload: Workload, in_force: Mapping[str, str], quick: bool
) -> tuple[list[Candidate], list[Untried]]:
    """The alternatives to try at this level, and those that cannot be tried.

    in_force: the values in effect, by choice; what is in effect already is not an alternative.
    quick: only those of the likeliest choices.
    """
    found: list[Candidate] = []
    untried: list[Untried] = []
    for choice, alternative in _offered(level, workload):
        if in_force.get(choice.name) == alternative.value:
            continue
        reason, probe = "", alternative.probe()
        if nothing_new := alternative.redundant(workload):
            reason = nothing_new
        elif not probe.available:
            reason = f"{probe.missing}; {probe.fix}"
        elif quick and not choice.likely:
            reason = "not among the likeliest choices"
        else:
            try:
                where = workload.mode, workload.device
                found.append(
                    Candidate(level.with_choices([alternative.name], *where), choice, alternative)
                )
            except GolowError as error:
                reason = error.message
        if reason:
            untried.append(Untried(choice=choice.name, alternative=alternative.name, reason=reason))
    return found, untried


def _offered(level: ChosenLevel, workload: Workload) -> Iterator[tuple[Choice, Alternative]]:
    """Alternatives of the level, without choices that the user set."""
    taken = {setting.choice for setting in level.settings}
    for choice in all_choices():
        if choice.name in taken:
            continue
        for alternative in choice.offered(level.level.name, workload.mode, workload.device):
            if not (level.variant and alternative.variant):
                yield choice, alternative

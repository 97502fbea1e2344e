"""The records of `golow levels --support`: which level runs which operation of a model.

Format history:

1   November 2026, the first.
"""

from __future__ import annotations

from typing import Literal

from golow.record import Device, Record, Workload

FORMAT_VERSION = 1

Answer = Literal["runs", "lacks", "module", "unknown"]


class Refusal(Record, frozen=True, kw_only=True):
    """Why a level cannot run an operation: the reason, the number of calls that it refuses for it,
    and the first of them (its node and the path of its layer, empty at the top of the model)."""

    level: str
    reason: str
    calls: int
    node: str = ""
    module: str = ""


class OperatorSupport(Record, frozen=True, kw_only=True):
    """One operation of the captured graph, under ATen's name: its calls, and who refuses them.

    refused: by level, how many of the calls it refuses. One may be refused for several reasons.
    """

    operator: str
    calls: int
    refused: dict[str, int] = {}
    refusals: tuple[Refusal, ...] = ()

    def reasons_of(self, level: str) -> tuple[Refusal, ...]:
        """The level's refusals; none if it runs every call."""
        return tuple(refusal for refusal in self.refusals if refusal.level == level)


class LevelSupport(Record, frozen=True, kw_only=True):
    """The answer of one level, and whether it can run on this machine.

    answer: ``runs`` every operation of the graph; ``lacks`` some, or the graph; ``module`` if it
    runs the module itself and is not asked; ``unknown`` if only an export can tell. device: where
    it would run. missing, fix: what this machine lacks for it, and the command that fixes it.
    """

    level: str
    device: Device
    answer: Answer
    missing: str = ""
    fix: str = ""


class Support(Record, frozen=True, kw_only=True):
    """Which level supports which operations of a workload.

    operators: what is missing somewhere first, then by number of calls. not_captured: why there is
    no graph; then there are no operators either.
    """

    format_version: int
    workload: Workload
    levels: tuple[LevelSupport, ...]
    operators: tuple[OperatorSupport, ...]
    not_captured: str = ""

    def level(self, name: str) -> LevelSupport:
        """The answer of one level; raises KeyError for one that was not asked."""
        for level in self.levels:
            if level.level == name:
                return level
        raise KeyError(name)

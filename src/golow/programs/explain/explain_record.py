"""The records of `golow levels --support`, which level runs which operation of a model, and of
`golow lower --roof`, what the steps of a plan take and must take.

Format history:

1   November 2026, the first.
    Added later: `Roof`, and its `gpu`.
"""

from __future__ import annotations

from typing import Literal

from golow.lower.ir.graph import Phase
from golow.measure.peak import Peak
from golow.records.comparison import Environment, Quantity
from golow.records.record import Record
from golow.records.workload import Device, Workload

FORMAT_VERSION = 1

Answer = Literal["runs", "lacks", "module", "unknown"]
Bound = Literal["memory", "arithmetic"]


class Refusal(Record, frozen=True, kw_only=True):
    """Why a level cannot run an operation: the reason, the number of calls that it refuses for it,
    and the first of them (its node and the path of its layer, empty at the top of the model)."""

    level: str
    reason: str
    calls: int
    node: str = ""
    module: str = ""


class OperatorSupport(Record, frozen=True, kw_only=True):
    """One operation of the captured graph, under ATen's name: its calls, and the levels that refuse
    them.

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


class StepRoof(Record, frozen=True, kw_only=True):
    """One step of a plan, by its position there, and the machine's roof over it.

    by: the code that runs it. operations: floating point operations of its products and
    convolutions. bytes: that it must move. layout_alone: it moves elements and computes nothing.
    least: seconds that the machine needs for the slower of the two. seconds: the median of what was
    measured, None if nothing was.
    """

    position: int
    operation: str
    modules: tuple[str, ...]
    phase: Phase
    by: str
    operations: float
    bytes: float
    layout_alone: bool
    bound: Bound
    least: float
    seconds: float | None = None

    @property
    def lost(self) -> float | None:
        """Seconds above the roof; negative if what it reads was still in a cache."""
        return None if self.seconds is None else self.seconds - self.least


class Roof(Record, frozen=True, kw_only=True):
    """The steps of a level's plan: those that lose most time first; if nothing was measured, those
    that need most.

    peak: of the machine. time: seconds of an iteration in a race, without a clock between its
    steps; None if it was not measured. life: what the plan cost before, such as ``build`` in
    seconds; empty if nothing was measured. build_cached: it had been built before. notes: of the
    level's run. gpu: the one whose published figures are the peak; empty if it was measured.
    """

    format_version: int
    workload: Workload
    level: str
    peak: Peak
    steps: tuple[StepRoof, ...]
    environment: Environment
    time: Quantity | None = None
    life: tuple[Quantity, ...] = ()
    build_cached: bool = False
    notes: tuple[str, ...] = ()
    gpu: str = ""

    @property
    def layout_bytes(self) -> float:
        """Bytes that an iteration moves for layout alone."""
        return sum(step.bytes for step in self.steps if step.layout_alone)

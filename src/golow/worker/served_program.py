"""Program that a Python worker serves: one level that runs one workload, and optional abilities.

`serve` finds out by these protocols what a program can be asked. Nothing here imports a framework.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from golow.records.comparison import LayerTime
from golow.records.workload import Mode, Workload
from golow.worker.protocol import ArenaReport, CopiesReport, LoadReport, Marks, ValuesReport

if TYPE_CHECKING:
    import numpy as np

    from golow.worker.feed import Feed


class Program(Protocol):
    """Program that a Python worker serves: one level that runs one workload."""

    def load(self, bundle: Path) -> LoadReport:
        """Build and load: everything that is not an iteration."""

    def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """Run these batches from the bundle's weights and write the tensors to the file."""

    def iterate(self) -> None:
        """One iteration on the next batch; returns when it is done, or enqueued on a device."""

    def last(self) -> float:
        """The loss, or the first output element, of the last iteration."""

    def allocated_peak(self) -> int | None:
        """Peak bytes of one iteration beyond those held before it."""


@runtime_checkable
class VerifiableProgram(Program, Protocol):
    """A program whose timed iterations can be verified; a comparison requires it."""

    def reset(self, learning_rate: float) -> None:
        """Go back to the bundle's weights and a new optimizer; training then uses this rate."""

    def seek(self, iteration: int) -> None:
        """Let the next iteration be that one: it uses batch ``iteration`` modulo their number."""

    def marked(self, marks: Marks) -> AbstractContextManager[Callable[[int], None]]:
        """A function that writes the values from that place of the row (`values_of`) on into the
        marked part of the next iteration's batch, enqueued on a device; on leaving, the batches are
        the bundle's again."""

    def keep(self) -> None:
        """Keep the result of the last iteration; on a device this is enqueued."""

    def kept(self) -> list[float]:
        """The results kept since the last call, in order; waits for a device."""

    def write_result(self, file: Path) -> None:
        """Write the whole result of the last iteration to the file."""


@runtime_checkable
class RankedProgram(Program, Protocol):
    """A program that is one of several ranks."""

    def meet(self) -> None:
        """Wait until every rank is here, with its device's work done."""


@runtime_checkable
class ReplicatedProgram(RankedProgram, Protocol):
    """A rank that holds all parameters, as the others do; one that holds a part of them raises
    `Unsupported`."""

    def digest(self) -> str:
        """SHA-256 of the bytes of all parameters, in their order."""


@runtime_checkable
class ChoosingProgram(Program, Protocol):
    """A program that takes alternatives to what is chosen by default, and states what is in
    effect."""

    def choose(self, names: Sequence[str]) -> None:
        """Make these alternatives; called before each `load`."""

    def choices(self, names: Sequence[str]) -> dict[str, str]:
        """The values in effect of the choices with these names, as far as it can read them."""


@runtime_checkable
class DividedProgram(Program, Protocol):
    """A program that can also be timed layer by layer; others lack the method, or raise
    `Unsupported` with the reason."""

    def layers(self, iterations: int) -> tuple[LayerTime, ...]:
        """Run that many iterations and time each step separately."""


@runtime_checkable
class ProfiledProgram(Program, Protocol):
    """A program that can write down what happens in an iteration; others lack the method, or raise
    `Unsupported` with the reason."""

    def profile(self, iterations: int, file: Path) -> None:
        """Run that many iterations and write their trace, in Chrome's trace event format, to the
        file. Each is an event ``golow step N`` of the category ``user_annotation``."""


@runtime_checkable
class PlannedProgram(Program, Protocol):
    """A program whose memory is planned before it runs; others lack the method, or raise
    `Unsupported` with the reason."""

    def arena(self) -> ArenaReport:
        """The plan of an iteration's memory."""


@runtime_checkable
class StepwiseProgram(Program, Protocol):
    """A program that runs the operations of a graph one after the other, and can hand over what
    each of them makes; others lack the method."""

    def values(
        self, batch: int, learning_rate: float, first: int, most: int, file: Path, hard: bool
    ) -> ValuesReport:
        """Run one iteration on that batch from the bundle's weights, with random layers off; write
        the values that its nodes make from that position on, up to this many bytes, into the file.
        hard: replace inputs of operations with hard ones, and write what those operations read and
        make. Gradients are of the loss as the level scales it."""


@runtime_checkable
class CountedProgram(Program, Protocol):
    """A program whose instructions can be counted; others lack the method, or raise
    `Unsupported` with the reason."""

    def bare_call(self) -> AbstractContextManager[Callable[[], object]]:
        """A function that runs one forward pass on the first batch, with nothing of golow's around
        it."""


class Stopwatch(Protocol):
    """A device's events around iterations that are enqueued without waiting."""

    def flush(self) -> None:
        """Enqueue a write of twice the size of the device's L2 cache, which empties it."""

    def start(self, iteration: int) -> None:
        """Enqueue the event before the iteration of that number, from 0."""

    def stop(self, iteration: int) -> None:
        """Enqueue the event after it."""

    def nanoseconds(self) -> tuple[int, ...]:
        """Wait for the device once; the device time of each iteration."""


@runtime_checkable
class WakingProgram(Protocol):
    """A program whose large imports happen only when it loads a workload."""

    def wake(self, mode: Mode) -> None:
        """Import what loading a workload of that mode needs."""


@runtime_checkable
class DeviceProgram(Program, Protocol):
    """A program that may run on a device; the device's own clock then times it."""

    def stopwatch(self, iterations: int) -> Stopwatch | None:
        """Events for that many iterations; None if it runs on the CPU, whose clock then times
        it."""


@runtime_checkable
class FedProgram(Program, Protocol):
    """A program that can also be fed from the host, to measure copies; others lack the method, or
    raise `Unsupported` with the reason."""

    def copies(self, iterations: int) -> CopiesReport:
        """Run that many iterations, each batch copied from ordinary host memory."""


@runtime_checkable
class TrainableProgram(Program, Protocol):
    """A program that can also train whole epochs, for a training workload."""

    workload: Workload

    def epoch(self, feed: Feed, rates: Sequence[float]) -> list[float]:
        """Train on each batch of the feed with its own learning rate, from the current state; the
        loss of each. Returns when the device has finished, with one wait."""

    def save(self, file: Path) -> None:
        """Write parameters, buffers, what the optimizer keeps and, in fp16, the loss scale."""

    def restore(self, file: Path) -> None:
        """Continue from a file that `save` wrote; what the optimizer keeps is zero if missing."""


@runtime_checkable
class PredictingProgram(Program, Protocol):
    """A program that can also run a whole data set, for an inference workload."""

    workload: Workload

    def predict(self, feed: Feed) -> np.ndarray:
        """The output for every row of the feed, float32 [rows, ...]."""

    def restore(self, file: Path) -> None:
        """Take parameters and buffers from a file that a training program's `save` wrote, and
        derive again everything that depends on them."""

"""The words of the worker protocol; ``docs/protocol.md`` is their meaning.

Nothing here imports a framework: the parent and every Python worker share this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from golow.record import LayerTime, Mode, Record, Workload

if TYPE_CHECKING:
    import numpy as np

    from golow.worker.feed import Feed


class LoadReport(Record, frozen=True, kw_only=True):
    """What `load` brought: seconds of each phase, the artifact's bytes, and remarks."""

    phases: dict[str, float]
    artifact_bytes: int | None = None
    cached: bool = False
    notes: tuple[str, ...] = ()


class TimeReport(Record, frozen=True, kw_only=True):
    """What `time` brought: nanoseconds of each timed iteration."""

    host_ns: tuple[int, ...]
    device_ns: tuple[int, ...] | None = None
    last: float | None = None


class CopiesReport(Record, frozen=True, kw_only=True):
    """What `copies` brought, an iteration: bytes from host to device, the nanoseconds that their
    copies took, and from what kind of host memory: ``pageable``, ``pinned``, both, or ``none``."""

    bytes: int
    nanoseconds: int
    kind: str


class LayersReport(Record, frozen=True, kw_only=True):
    """What `layers` brought: the steps of an iteration in order of execution."""

    layers: tuple[LayerTime, ...]


class EpochReport(Record, frozen=True, kw_only=True):
    """What `epoch` brought: the loss of each batch, None where it is no finite number; crc32 over
    the pixels and labels that were consumed; nanoseconds of all of it."""

    losses: tuple[float | None, ...]
    checksum: int
    nanoseconds: int


class PredictReport(Record, frozen=True, kw_only=True):
    """What `predict` brought: the nanoseconds of all its batches."""

    nanoseconds: int


class Program(Protocol):
    """What a Python worker serves: one level, ready to run one workload."""

    def load(self, bundle: Path) -> LoadReport:
        """Build and load; everything that is not an iteration."""

    def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """Run these batches from the bundle's weights and write the tensors to the file."""

    def iterate(self) -> None:
        """One iteration on the next batch; returns when it is done, or enqueued on a device."""

    def last(self) -> float:
        """The loss, or the first output element, of the last iteration."""

    def allocated_peak(self) -> int | None:
        """Bytes that one iteration holds at most beyond what was held before it."""


@runtime_checkable
class DividedProgram(Program, Protocol):
    """A program that can also be timed layer by layer; one that cannot lacks the method, or
    raises `golow.record.Unsupported` with the reason."""

    def layers(self, iterations: int) -> tuple[LayerTime, ...]:
        """Run that many iterations, each step timed by itself."""


class Stopwatch(Protocol):
    """Events of a device around iterations that are enqueued on it without waiting."""

    def flush(self) -> None:
        """Enqueue the emptying of the device's L2 cache, by writing twice its size."""

    def start(self, iteration: int) -> None:
        """Enqueue the event before the iteration of that number, from 0."""

    def stop(self, iteration: int) -> None:
        """Enqueue the event behind it."""

    def nanoseconds(self) -> tuple[int, ...]:
        """Wait for the device, once; its time of each iteration."""


@runtime_checkable
class WakingProgram(Protocol):
    """A program that imports much only when it loads a workload."""

    def wake(self, mode: Mode) -> None:
        """Import what loading a workload of that mode would."""


@runtime_checkable
class DeviceProgram(Program, Protocol):
    """A program that may run on a device and is then timed by the device's own clock."""

    def stopwatch(self, iterations: int) -> Stopwatch | None:
        """Events for that many iterations; None if it runs on the CPU, by whose clock it is timed
        then."""


@runtime_checkable
class FedProgram(Program, Protocol):
    """A program that can also be fed from the host, to see what is copied; one that cannot lacks
    the method, or raises `golow.record.Unsupported` with the reason."""

    def copies(self, iterations: int) -> CopiesReport:
        """Run that many iterations, each batch copied from ordinary host memory."""


@runtime_checkable
class TrainableProgram(Program, Protocol):
    """A program that can also train whole epochs, for a workload in training."""

    workload: Workload

    def epoch(self, feed: Feed, rates: Sequence[float]) -> list[float]:
        """Train on each batch of the feed with its own learning rate, from the state as it is; the
        loss of each. Returns when the device has finished, for which it waits once."""

    def save(self, file: Path) -> None:
        """Write parameters, buffers, momentum and, in fp16, the loss scale."""

    def restore(self, file: Path) -> None:
        """Go on from what `save` wrote; momentum that is missing is zero."""


@runtime_checkable
class PredictingProgram(Program, Protocol):
    """A program that can also run a whole data set, for a workload in inference."""

    workload: Workload

    def predict(self, feed: Feed) -> np.ndarray:
        """The output for every row of the feed, float32 [rows, ...]."""

    def restore(self, file: Path) -> None:
        """Take parameters and buffers from what a training program's `save` wrote; all that was
        derived of weights is derived again."""


def line(answer: dict[str, Any]) -> bytes:
    """One message as the protocol writes it."""
    return msgspec.json.encode(answer) + b"\n"

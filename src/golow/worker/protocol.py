"""The words of the worker protocol; ``docs/protocol.md`` is their meaning.

Nothing here imports a framework: the parent and every Python worker share this file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from golow.record import LayerTime, Record


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


class LayersReport(Record, frozen=True, kw_only=True):
    """What `layers` brought: the steps of an iteration in order of execution."""

    layers: tuple[LayerTime, ...]


class Program(Protocol):
    """What a Python worker serves: one level, ready to run one workload."""

    def load(self, bundle: Path) -> LoadReport:
        """Build and load; everything that is not an iteration."""

    def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """Run these batches from the bundle's weights and write the tensors to the file."""

    def iterate(self) -> None:
        """One iteration on the next batch; returns when it is done."""

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


def line(answer: dict[str, Any]) -> bytes:
    """One message as the protocol writes it."""
    return msgspec.json.encode(answer) + b"\n"

"""Profiles as flat rows for spreadsheets and data frames: a row per precision, level and item.

docs/use/profile_export.md lists the columns. A missing value is None: an empty cell in CSV. Times
are seconds of a step, sizes bytes, shares between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from golow.programs.profiling.kernels import KernelTime
from golow.programs.profiling.operators import OperatorTime
from golow.programs.profiling.profile_record import LevelProfile, Profile
from golow.programs.profiling.summary import Part
from golow.records.comparison import LayerTime
from golow.records.record import Record
from golow.report.units import TOP
from golow.storage.files import write_whole, writing
from golow.storage.spreadsheet import to_csv


class Row(Record, frozen=True, kw_only=True):
    """The columns of every table: the workload and the level."""

    model: str
    mode: str
    device: str
    batch: int
    precision: str
    level: str


class SummaryRow(Row, frozen=True, kw_only=True):
    """A role of the execution summary, with the figures of its level; a level without a profile has
    one row without a role."""

    verdict: str
    reason: str
    step_seconds: float | None
    profiled_step_seconds: float | None
    profiled_steps: int
    role: str | None
    role_seconds: float | None
    role_share: float | None
    gpu_busy_share: float | None
    sm_efficiency_share: float | None
    occupancy_share: float | None
    tensor_cores_share: float | None


class OperatorRow(Row, frozen=True, kw_only=True):
    """An operator of a level."""

    operator: str
    shapes: str
    sites: str
    calls: float
    self_host_seconds: float
    total_host_seconds: float
    self_device_seconds: float
    total_device_seconds: float
    self_host_memory_bytes: float
    total_host_memory_bytes: float
    self_device_memory_bytes: float
    total_device_memory_bytes: float


class KernelRow(Row, frozen=True, kw_only=True):
    """A kernel of a level, with one grid and block."""

    kernel: str
    operator: str
    layer: str
    phase: str
    calls: float
    seconds: float
    lowest_seconds: float
    highest_seconds: float
    grid: str
    block: str
    registers_per_thread: int | None
    shared_memory_bytes: int | None
    blocks_per_multiprocessor: float | None
    occupancy_share: float | None
    tensor_cores: bool


class LayerRow(Row, frozen=True, kw_only=True):
    """A step of a level, in order of execution."""

    position: int
    phase: str
    layer: str
    fused_layers: str
    operation: str
    seconds: float
    iterations: int
    kernels: float | None


def write_tables(profiles: Sequence[Profile], folder: Path) -> list[Path]:
    """Write ``summary.csv``, ``operators.csv``, ``kernels.csv`` and ``layers.csv`` into the folder;
    returns the files. Raises `GolowError` when the folder cannot be written."""
    files = []
    with writing(folder, "free some space or name another folder."):
        folder.mkdir(parents=True, exist_ok=True)
        for name, (kind, rows_of) in TABLES.items():
            files.append(folder / f"{name}.csv")
            rows = [msgspec.structs.asdict(row) for row in _rows(profiles, rows_of)]
            write_whole(files[-1], to_csv(rows, kind.__struct_fields__).encode())
    return files


def summary_rows(place: dict[str, Any], level: LevelProfile) -> Iterator[SummaryRow]:
    """One row per role; one without a role if there is no profile."""
    parts: Sequence[Part | None] = level.summary or (None,)
    gpu = level.gpu
    for part in parts:
        yield SummaryRow(
            **place,
            verdict=level.verdict,
            reason=level.reason or level.missing,
            step_seconds=level.time.value if level.time else None,
            profiled_step_seconds=level.profiled,
            profiled_steps=level.steps,
            role=part.role if part else None,
            role_seconds=part.seconds if part else None,
            role_share=part.share if part else None,
            gpu_busy_share=gpu.utilization if gpu else None,
            sm_efficiency_share=gpu.sm_efficiency if gpu else None,
            occupancy_share=gpu.occupancy if gpu else None,
            tensor_cores_share=gpu.tensor_cores if gpu else None,
        )


def operator_rows(place: dict[str, Any], level: LevelProfile) -> Iterator[OperatorRow]:
    """One row per operator, the longest first."""
    for item in level.operators:
        yield _operator_row(place, item)


def kernel_rows(place: dict[str, Any], level: LevelProfile) -> Iterator[KernelRow]:
    """One row per kernel with one grid and block, the longest first."""
    for item in level.kernels:
        yield _kernel_row(place, item)


def layer_rows(place: dict[str, Any], level: LevelProfile) -> Iterator[LayerRow]:
    """One row per step, in order of execution; the layers that it covers besides the first are
    fused."""
    for position, step in enumerate(level.layers, 1):
        yield _layer_row(place, position, step)


TABLES: dict[str, tuple[type[Row], Callable[[dict[str, Any], LevelProfile], Iterator[Row]]]] = {
    "summary": (SummaryRow, summary_rows),
    "operators": (OperatorRow, operator_rows),
    "kernels": (KernelRow, kernel_rows),
    "layers": (LayerRow, layer_rows),
}


# ---------------------------------------------------------------- how it is done


def _rows(
    profiles: Sequence[Profile], rows_of: Callable[[dict[str, Any], LevelProfile], Iterator[Row]]
) -> Iterator[Row]:
    for profile in profiles:
        workload = profile.workload
        place = {
            name: getattr(workload, name)
            for name in ("model", "mode", "device", "batch", "precision")
        }
        for level in profile.levels:
            yield from rows_of(place | {"level": level.level}, level)


def _operator_row(place: dict[str, Any], item: OperatorTime) -> OperatorRow:
    return OperatorRow(
        **place,
        operator=item.name,
        shapes=item.shapes,
        sites=" ".join(item.sites),
        calls=item.calls,
        self_host_seconds=item.self_host,
        total_host_seconds=item.total_host,
        self_device_seconds=item.self_device,
        total_device_seconds=item.total_device,
        self_host_memory_bytes=item.self_host_memory,
        total_host_memory_bytes=item.total_host_memory,
        self_device_memory_bytes=item.self_device_memory,
        total_device_memory_bytes=item.total_device_memory,
    )


def _kernel_row(place: dict[str, Any], item: KernelTime) -> KernelRow:
    return KernelRow(
        **place,
        kernel=item.name,
        operator=item.operator,
        layer=item.layer or TOP,
        phase=item.phase,
        calls=item.calls,
        seconds=item.seconds,
        lowest_seconds=item.lowest,
        highest_seconds=item.highest,
        grid="x".join(map(str, item.grid)),
        block="x".join(map(str, item.block)),
        registers_per_thread=item.registers,
        shared_memory_bytes=item.shared_memory,
        blocks_per_multiprocessor=item.blocks_per_sm,
        occupancy_share=item.occupancy,
        tensor_cores=item.tensor_cores,
    )


def _layer_row(place: dict[str, Any], position: int, step: LayerTime) -> LayerRow:
    first, *fused = step.modules
    return LayerRow(
        **place,
        position=position,
        phase=step.phase,
        layer=first or TOP,
        fused_layers=" ".join(layer or TOP for layer in fused),
        operation=step.operation,
        seconds=median(step.ns) / 1e9,
        iterations=len(step.ns),
        kernels=step.kernels,
    )

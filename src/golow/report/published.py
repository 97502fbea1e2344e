"""Published figures with their source: accuracies for the same data sets, and times, memory and
utilization over batch size and resolution."""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from golow.records.errors import GolowError
from golow.records.record import Record
from golow.records.workload import Mode

HERE = Path(__file__).parent


class Published(Record, frozen=True, kw_only=True):
    """A paper's table. levels: golow's level for each of the paper's implementations. accuracy: by
    data set and implementation, in ``unit``, after ``epochs`` of ``model``."""

    source: str
    name: str
    model: str
    epochs: int
    unit: str
    levels: dict[str, str]
    accuracy: dict[str, dict[str, float]]


class PublishedCell(Record, frozen=True, kw_only=True):
    """An implementation at one batch size and resolution. level: golow's corresponding level;
    sample_time in seconds, memory in bytes, utilization as a share."""

    level: str
    mode: Mode
    batch: int
    resolution: int
    sample_time: float
    memory: float
    utilization: float


class PublishedGrid(Record, frozen=True, kw_only=True):
    """A paper's figures over batch size and resolution for golow's model of that name. where: year
    and GPU in short, for a legend."""

    source: str
    name: str
    model: str
    where: str
    hardware: str
    software: str
    levels: dict[str, str]
    cells: tuple[PublishedCell, ...]


@cache
def levental2020() -> Published:
    """Levental and Orlova's final accuracies of ResNet-50."""
    return msgspec.json.decode((HERE / "levental2020_accuracy.json").read_bytes(), type=Published)


def accuracies(published: Published, dataset: str) -> dict[str, float]:
    """By implementation, for golow's data set of that name; empty where the paper has none.
    ``voc2007`` and ``voc2012`` are both its PASCAL."""
    return published.accuracy.get("pascal" if dataset.startswith("voc") else dataset, {})


@cache
def levental2020_grid() -> PublishedGrid:
    """Levental and Orlova's times, memory and utilization of ResNet-50 on PASCAL VOC images."""
    paper = levental2020()
    levels = {"TorchScript": "torchscript", **paper.levels}
    by_column = {name.lower(): level for name, level in levels.items()}
    with (HERE / "levental2020.csv").open(newline="") as file:
        table = list(csv.DictReader(line for line in file if not line.startswith("#")))
    cells = tuple(
        PublishedCell(
            level=by_column[row["level"]],
            mode="train" if row["mode"] == "train" else "infer",
            batch=int(row["batch"]),
            resolution=int(row["resolution"]),
            sample_time=float(row["sample_ms"]) / 1e3,
            memory=float(row["used_mib"]) * 2**20,
            utilization=float(row["gpu_util_percent"]) / 100,
        )
        for row in table
    )
    return PublishedGrid(
        source=paper.source,
        name=paper.name,
        model="resnet50",
        where="2020 (V100)",
        hardware="Tesla V100-PCIE-32GB",
        software="PyTorch 1.7.0, CUDA 11.1",
        levels=levels,
        cells=cells,
    )


GRIDS: dict[str, Callable[[], PublishedGrid]] = {"levental2020": levental2020_grid}


def grid(name: str) -> PublishedGrid:
    """The published figures of that name; raises `GolowError` for an unknown name."""
    if name not in GRIDS:
        raise GolowError(f"there are no published figures {name!r}", f"use {', '.join(GRIDS)}.")
    return GRIDS[name]()

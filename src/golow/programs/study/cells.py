"""Axes -> cells: the list of cells, the order in which they are measured, the key of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from golow.levels import ladder
from golow.levels.generation import table
from golow.programs.study.study_record import (
    FORMAT_VERSION,
    Cell,
    Study,
    calibrate_of,
    generations_of,
    phase_of,
    pretrained_of,
)
from golow.records.errors import GolowError
from golow.records.workload import Mode

KEY_LENGTH = 16  # hexadecimal digits of a key


def cells(study: Study, hardware_threads: int) -> list[Cell]:
    """Every cell of the study on a machine with this many hardware threads, in measuring order.

    The first cells span the grid: the corners of batch x resolution x threads, then the middle,
    then the middles of the gaps, and so on. Within such a round, small cells come before large
    ones. Cells that differ only in model, mode, precision or lengths of texts follow one another.
    """
    counts = thread_counts(study, hardware_threads)
    resolutions = study.resolution or (None,)
    rounds = [
        dict(zip(axis, bisected(len(axis)), strict=True))
        for axis in (study.batch, resolutions, counts)
    ]

    def place(point: tuple[int, int | None, int | None]) -> tuple[int, int]:
        batch, resolution, _ = point
        latest = max(found[value] for found, value in zip(rounds, point, strict=True))
        return latest, work(batch, resolution)

    sources = {model: source_digest(model) for model in study.model}
    return [
        Cell(
            model=model,
            mode=mode,
            batch=batch,
            resolution=resolution,
            precision=precision,
            threads=threads,
            device=study.device,
            levels=levels_of(study, mode, ranks),
            channels=study.channels,
            classes=study.classes,
            interval=study.limits.interval,
            seconds=study.limits.seconds,
            source=sources[model],
            pretrained=pretrained_of(study, model),
            phase=phase_of(study, model),
            load=study.load,
            generation=generation,
            calibrate=calibrate_of(study, precision),
            ranks=ranks,
            input=study.input,
        )
        for batch, resolution, threads in sorted(
            product(study.batch, resolutions, counts), key=place
        )
        for ranks, model, mode, precision, generation in product(
            study.rank_counts, study.model, study.mode, study.precision, generations_of(study)
        )
        if ranks == 1 or mode == "train"
    ]


def work(batch: int, resolution: int | None) -> int:
    """The size with which time and memory of a large cell grow: the pixels of a batch, or its
    samples if the study has no resolution."""
    return batch * (resolution or 1) ** 2


def bisected(count: int) -> list[int]:
    """The round of each of this many positions on an axis: 0 for the two ends, 1 for the middle, 2
    for the middles of the halves, ..."""
    turns = [0] * count
    spans, turn = [(0, count - 1)], 1
    while spans:
        halves = []
        for low, high in spans:
            if high - low > 1:
                middle = (low + high) // 2
                turns[middle] = turn
                halves += [(low, middle), (middle, high)]
        spans, turn = halves, turn + 1
    return turns


def thread_counts(study: Study, hardware_threads: int) -> Sequence[int | None]:
    """The thread counts of the study; None means one per physical core."""
    if study.threads == "doubling":
        return [*_doubling(hardware_threads), hardware_threads]
    return study.threads or (None,)


def levels_of(study: Study, mode: Mode, ranks: int = 1) -> tuple[str, ...]:
    """Return the levels of the study that can run in this mode with this number of ranks on its
    device, by name: the baseline first, or for texts in the usual order of levels."""
    if study.generation is not None:
        return tuple(level.name for level in table.chosen(study.levels, study.device))
    found = []
    for name in (ladder.baseline(ranks), *study.levels):
        try:
            found.append(ladder.choose(name, mode, study.device, ranks).name)
        except GolowError:
            continue  # for another mode, device or number; `read_study` has checked the name
    return tuple(dict.fromkeys(found))


LATER: dict[str, Any] = {
    "pretrained": None,
    "phase": "",
    "load": None,
    "generation": None,
    "calibrate": "",
    "ranks": 1,
    "input": "",
}
"""Fields that cells of earlier versions lack, with what it means that they do: the keys of such
cells stay what they were."""


def key(cell: Cell) -> str:
    """A digest of the cell's content: the request and the format of its record.

    The order of the levels and the folder of the model's file do not change it.
    """
    asked = msgspec.structs.replace(
        cell,
        levels=tuple(sorted(cell.levels)),
        model=Path(cell.model).name if cell.source else cell.model,
    )
    fields = msgspec.to_builtins(asked)
    for name, default in LATER.items():
        if fields[name] == default:
            del fields[name]
    content = msgspec.json.encode([FORMAT_VERSION, fields], order="sorted")
    return hashlib.sha256(content).hexdigest()[:KEY_LENGTH]


def source_digest(model: str) -> str:
    """sha256 of the file that a model comes from; empty if it is not named by a file."""
    path = Path(model if model.endswith(".pt2") else model.rpartition(":")[0])
    if path.suffix not in (".py", ".pt2") or not path.is_file():
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _doubling(below: int) -> Iterator[int]:
    count = 1
    while count < below:
        yield count
        count *= 2

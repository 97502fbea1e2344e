"""The frozen records of a study: what is asked, one cell of it, what became of a cell.

Format history (``FORMAT_VERSION`` is written into every cell's record and is part of its key):

1   November 2026, the first: ``study.toml``, and ``cells/ENVIRONMENT/KEY/`` with one ``cell.json``
    and the comparison's folder.

As in ``record.py`` nothing here imports torch; seconds and bytes are plain numbers.
"""

from __future__ import annotations

from typing import Literal

from golow.record import Device, Mode, Precision, Record, Run

FORMAT_VERSION = 1

CellState = Literal["done", "failed", "skipped"]

# Of a level's failed check: what the reason begins with when memory ran out.
OUT_OF_MEMORY = "out of memory"


# ---------------------------------------------------------------- what is asked


class StudyLimits(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a cell may be measured and how much memory it may need.

    interval: relative width to which each ratio's 95% interval is narrowed, within ``seconds`` of
    racing. cell_seconds: a cell that takes longer than that in all is ended. memory: of the device,
    as ``80%`` or ``40 GiB``: cells that are certain to need more are skipped.
    """

    interval: float = 0.02
    seconds: float = 10.0
    cell_seconds: float = 600.0
    memory: str = "80%"


class Study(Record, frozen=True, kw_only=True):
    """Axes and what is measured at each of their crossings.

    resolution: side of the square images; empty means each model's own. threads: empty means
    one a physical core; ``doubling`` means 1, 2, 4, ... and one a hardware thread. channels and
    classes: of models of the zoo, None for their own.
    """

    name: str
    model: tuple[str, ...]
    mode: tuple[Mode, ...] = ("infer",)
    levels: tuple[str, ...]
    device: Device = "cpu"
    batch: tuple[int, ...]
    resolution: tuple[int, ...] = ()
    precision: tuple[Precision, ...] = ("default",)
    threads: tuple[int, ...] | Literal["doubling"] = ()
    channels: int | None = None
    classes: int | None = None
    limits: StudyLimits = StudyLimits()


class Cell(Record, frozen=True, kw_only=True):
    """One crossing of the axes: what one `golow.compare` is asked.

    levels: by their own names (no alias), ``eager`` first, those of the study that can run in this
    mode and on this device. resolution, channels, classes: None for the model's own. threads: None
    for one a physical core. source: sha256 of the model's file, empty for a model of the zoo or a
    package.
    """

    model: str
    mode: Mode
    batch: int
    resolution: int | None
    precision: Precision
    threads: int | None
    device: Device
    levels: tuple[str, ...]
    channels: int | None = None
    classes: int | None = None
    interval: float
    seconds: float
    source: str = ""


def asks(study: Study, cell: Cell) -> bool:
    """Whether the cell lies on the study's axes and is measured as its limits say. Of levels and of
    doubled thread counts nothing is said: they depend on the machine."""
    threads = study.threads or (None,)
    return (
        cell.model in study.model
        and cell.mode in study.mode
        and cell.device == study.device
        and cell.batch in study.batch
        and cell.resolution in (study.resolution or (None,))
        and cell.precision in study.precision
        and (threads == "doubling" or cell.threads in threads)
        and (cell.channels, cell.classes) == (study.channels, study.classes)
        and (cell.interval, cell.seconds) == (study.limits.interval, study.limits.seconds)
    )


# ---------------------------------------------------------------- what became of it


class Machine(Record, frozen=True, kw_only=True):
    """Where a cell was measured: host, the device in words, the GPU's UUID (empty on a CPU)."""

    host: str = ""
    device: str = ""
    uuid: str = ""


class CellRecord(Record, frozen=True, kw_only=True):
    """What became of one cell, whatever that was.

    state: ``done``: its comparison is there, in which any level may have failed; ``failed``: there
    is none, for the reason given; ``skipped``: it was certain to need more memory than allowed.
    environment: the name of the folder that holds all cells measured alike. seconds: the cell's
    whole time, most of it starts and checks. comparison: the name of the comparison's folder beside
    this record, empty unless done. out_of_memory: the levels that ran out of memory. needed_bytes:
    what one iteration of eager holds at most; held_bytes: what all levels held on the device beside
    one another; None where it was not had. log: the end of what the cell wrote to standard error,
    if it failed.
    """

    format_version: int
    key: str
    cell: Cell
    state: CellState
    reason: str = ""
    created: str
    seconds: float = 0.0
    environment: str = ""
    machine: Machine = Machine()
    comparison: str = ""
    out_of_memory: tuple[str, ...] = ()
    needed_bytes: int | None = None
    held_bytes: int | None = None
    log: str = ""


def ran_out_of_memory(run: Run) -> bool:
    """Whether that is why the level has no figures."""
    return run.check.verdict == "failed" and run.check.reason.startswith(OUT_OF_MEMORY)

"""A life cycle as flat rows for spreadsheets and data frames; docs/use/life.md lists the columns.

A missing value is None: an empty cell in CSV. Times are seconds, sizes bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from golow.programs.life.life_record import Change, LevelLife, Life, LifeCycle
from golow.programs.life.mitigations import mitigations
from golow.programs.life.stages import DECADES, STAGES, curves
from golow.report.life.remarks import caches
from golow.storage.files import write_whole, writing
from golow.storage.spreadsheet import to_csv

FIGURES = (
    *("disk", "artifact", "resident", "resident_peak", "device_used", "device_added"),
    *("gpu_energy", "package_energy", "wait_share"),
)


def life_rows(found: LifeCycle) -> list[dict[str, Any]]:
    """One row per life; a level without one has a row with its verdict and the reason."""
    rows = []
    for level in found.levels:
        lives: Sequence[Life | None] = level.lives or (None,)
        rows += [_life_row(found, level, one) for one in lives]
    return rows


def change_rows(found: LifeCycle) -> list[dict[str, Any]]:
    """One row per change of the batch size."""
    return [_change_row(found, level, one) for level in found.levels for one in level.changes]


def total_rows(found: LifeCycle) -> list[dict[str, Any]]:
    """The total time of every level and cache for 1, 10, ... iterations."""
    return [
        {"level": name, "cache": cache, "iterations": count, "total_seconds": curve.total(count)}
        for cache in caches(found)
        for name, curve in curves(found, cache).items()
        for count in DECADES
    ]


def mitigation_rows(found: LifeCycle) -> list[dict[str, Any]]:
    """A row for all that was tried to shorten a stage: medians."""
    return [
        {
            "level": one.level,
            "stages": one.stages,
            "tried": one.name,
            "seconds_without": one.without.median,
            "seconds_with": one.used.median,
        }
        for one in mitigations(found)
    ]


def write_tables(found: LifeCycle, folder: Path) -> None:
    """Write the tables into the folder; one without rows is left out."""
    tables = {
        "life": life_rows(found),
        "life-batches": change_rows(found),
        "life-totals": total_rows(found),
        "life-mitigations": mitigation_rows(found),
    }
    with writing(folder, "free some space or name another folder with --out."):
        for name, rows in tables.items():
            if rows:
                write_whole(folder / f"{name}.csv", to_csv(rows).encode())


def _workload(found: LifeCycle, level: LevelLife) -> dict[str, Any]:
    workload = found.workload
    return {
        "model": workload.model,
        "mode": workload.mode,
        "device": workload.device,
        "precision": workload.precision,
        "batch": workload.batch,
        "level": level.level,
    }


def _life_row(found: LifeCycle, level: LevelLife, one: Life | None) -> dict[str, Any]:
    row = {
        **_workload(found, level),
        "verdict": "failed" if level.failed else level.verdict,
        "reason": level.failed or level.reason,
        "cache": one.cache if one else None,
        "round": one.round if one else None,
        "setting": one.setting if one else None,
    }
    row |= {f"{stage}_seconds": one.seconds.get(stage) if one else None for stage in STAGES}
    row |= {
        "settled_after": one.settled_after if one else None,
        "race_seconds": level.time.value if level.time else None,
    }
    return row | {name: one.figure(name) if one else None for name in FIGURES}


def _change_row(found: LifeCycle, level: LevelLife, one: Change) -> dict[str, Any]:
    return {
        **_workload(found, level),
        "new_batch": one.batch,
        "round": one.round,
        "same_process": one.same_process,
        **{f"{stage}_seconds": one.seconds.get(stage) for stage in STAGES if stage != "end"},
        "settled_after": one.settled_after,
        "until_first_seconds": one.until_first,
        "until_steady_seconds": one.until_settled,
    }

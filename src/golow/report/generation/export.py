"""A generation as flat rows for spreadsheets and data frames; docs/use/generation.md lists the
columns. A missing value is None: an empty cell in CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from golow.programs.generation.generation_record import Generation, TextCase, TextRun
from golow.records.comparison import Quantity
from golow.report.generation.facts import curve, roof_share, tokens_per_second
from golow.storage.files import write_whole, writing
from golow.storage.spreadsheet import to_csv


def rows(found: Generation) -> list[dict[str, Any]]:
    """One row per level and batch size."""
    return [_row(found, case, run) for case in found.cases for run in case.runs]


def token_rows(found: Generation) -> list[dict[str, Any]]:
    """One row per level, batch size and length: the time of the token after this many others."""
    return [
        {
            "level": run.level,
            "batch": case.workload.batch,
            "tokens_before": before,
            "token_seconds": seconds,
        }
        for case in found.cases
        for run in case.runs
        for before, seconds in curve(case, run)
    ]


def write_tables(found: Generation, folder: Path) -> None:
    """Write the tables into the folder; one without rows is left out."""
    tables = {"generation": rows(found), "generation-tokens": token_rows(found)}
    with writing(folder, "free some space or name another folder with --out."):
        for name, table in tables.items():
            if table:
                write_whole(folder / f"{name}.csv", to_csv(table).encode())


def _row(found: Generation, case: TextCase, run: TextRun) -> dict[str, Any]:
    work = case.workload
    row: dict[str, Any] = {
        "model": work.model,
        "level": run.level,
        "precision": work.precision,
        "device": work.device,
        "batch": work.batch,
        "prompt": work.prompt,
        "tokens": work.tokens,
        "verdict": run.verdict,
        "reason": run.reason,
    }
    for name in ("first_token", "token", "slow_token"):
        quantity: Quantity | None = getattr(run, name)
        row[f"{name}_seconds"] = quantity.value if quantity else None
        row[f"{name}_low"] = quantity.low if quantity else None
        row[f"{name}_high"] = quantity.high if quantity else None
    row |= {
        "tokens_per_second": tokens_per_second(case, run),
        "roof_share": roof_share(found, case, run),
        "ratio": run.ratio.value if run.ratio else None,
        "departs_at": run.departure.token if run.departure else None,
        "replayed_tokens": run.replayed,
    }
    names = ("start", "resident", "resident_peak", "package_energy", "gpu_energy")
    return row | {name: run.figure(name) for name in names} | {"device_bytes": run.figure("device")}

"""An audit as flat rows for spreadsheets and data frames: a row per level and alternative.

docs/use/audit.md lists the columns. A missing value is None: an empty cell in CSV. Times are
seconds, sizes bytes; differences are the alternative's figure less the default's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from golow.programs.auditing.audit_record import Audit, AuditedLevel, Price
from golow.records.comparison import Run
from golow.records.record import Record
from golow.report.audit.facts import change, maker, ordered
from golow.storage.files import write_whole, writing
from golow.storage.spreadsheet import to_csv

FILE = "choices.csv"


class Row(Record, frozen=True, kw_only=True):
    """The columns."""

    model: str
    mode: str
    device: str
    batch: int
    precision: str
    level: str
    choice: str
    alternative: str
    made_by: str = ""
    now: str = ""
    value: str = ""
    finding: str
    verdict: str = ""
    reason: str = ""
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    first_ratio: float | None = None
    races: int = 0
    evidence: float | None = None
    default_seconds: float | None = None
    resident_difference: float | None = None
    allocated_difference: float | None = None
    device_difference: float | None = None
    ready_difference: float | None = None


def rows(audit: Audit) -> list[dict[str, object]]:
    """One row per alternative in the order of the tables; then the best combination of each level,
    and what was not tried."""
    found = (row for level in audit.levels for row in _rows(audit, level))
    return [msgspec.to_builtins(row) for row in found]


def write_tables(audit: Audit, folder: Path) -> None:
    """Write ``choices.csv`` into the folder; raises `GolowError` if that fails."""
    with writing(folder, "free some space or name another folder."):
        write_whole(folder / FILE, to_csv(rows(audit), Row.__struct_fields__).encode())


def _rows(audit: Audit, level: AuditedLevel) -> Iterator[Row]:
    workload = audit.workload
    base = Row(
        model=workload.model,
        mode=workload.mode,
        device=workload.device,
        batch=workload.batch,
        precision=workload.precision,
        level=level.level,
        choice="",
        alternative="",
        finding="",
        default_seconds=level.run.time.value if level.run.time else None,
    )
    for price in ordered(level):
        yield msgspec.structs.replace(
            base,
            choice=price.choice,
            alternative=price.alternative,
            made_by=maker(price),
            now=price.now,
            value=price.value,
            finding=price.finding if price.effect else "not timed",
            first_ratio=price.run.ratio.value if price.run.ratio else None,
            races=(price.run.ratio is not None) + (price.confirmed is not None),
            evidence=price.evidence,
            **_measured(level, price.run),
            **_effect(price),
        )
    if level.best is not None:
        run = level.best.run
        ratio = run.ratio
        yield msgspec.structs.replace(
            base,
            choice="best combination",
            alternative=" + ".join(level.best.alternatives),
            finding=ratio.word if ratio else "not timed",
            ratio=ratio.value if ratio else None,
            ratio_low=ratio.low if ratio else None,
            ratio_high=ratio.high if ratio else None,
            races=level.best.steps,
            **_measured(level, run),
        )
    for one in level.untried:
        yield msgspec.structs.replace(
            base,
            choice=one.choice,
            alternative=one.alternative,
            finding="not tried",
            reason=one.reason,
        )


def _effect(price: Price) -> dict[str, float]:
    ratio = price.effect
    if ratio is None:
        return {}
    return {"ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high}


def _measured(level: AuditedLevel, run: Run) -> dict[str, str | float | None]:
    on_device = (change(level, run, name) for name in ("device_used", "device_added"))
    return {
        "verdict": run.check.verdict,
        "reason": run.check.reason,
        "resident_difference": change(level, run, "resident"),
        "allocated_difference": change(level, run, "allocated_peak"),
        "device_difference": next((size for size in on_device if size is not None), None),
        "ready_difference": change(level, run, "ready"),
    }

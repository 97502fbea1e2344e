"""A load test as flat rows for spreadsheets and data frames: a row per level, scenario and rate.

docs/use/load.md lists the columns. A missing value is None: an empty cell in CSV. Times are
seconds, rates per second.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec

from golow.programs.load.load_record import LoadTest, Scenario
from golow.records.record import Record
from golow.report.load.facts import rows as fact_rows
from golow.storage.files import write_whole, writing
from golow.storage.spreadsheet import to_csv

FILE = "load.csv"


class Row(Record, frozen=True, kw_only=True):
    """The columns."""

    model: str
    device: str
    level: str
    verdict: str
    scenario: str = ""
    rate: float | None = None
    result: str = ""
    requests: int | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    p999: float | None = None
    ttft_p50: float | None = None
    ttft_p90: float | None = None
    ttft_p99: float | None = None
    tpot_p50: float | None = None
    tpot_p90: float | None = None
    tpot_p99: float | None = None
    tokens_per_second: float | None = None
    throughput: float | None = None
    batch: float | None = None
    padding: float | None = None
    queue: int | None = None
    dropped: int | None = None
    waiting: float | None = None
    batcher: float | None = None
    joules: float | None = None
    highest_rate: float | None = None
    highest_rate_low: float | None = None
    highest_rate_high: float | None = None


def rows(found: LoadTest) -> list[dict[str, object]]:
    """One row per level, scenario and rate; then the highest rate of each level, where it was
    searched."""
    return [msgspec.to_builtins(row) for row in _rows(found)]


def write_tables(found: LoadTest, folder: Path) -> None:
    """Write ``load.csv`` into the folder; raises `GolowError` if that fails."""
    with writing(folder, "free some space or name another folder."):
        write_whole(folder / FILE, to_csv(rows(found), Row.__struct_fields__).encode())


def _rows(found: LoadTest) -> Iterator[Row]:
    verdicts = {level.label: level.check.verdict for level in found.levels}
    scenarios: tuple[Scenario, ...] = get_args(Scenario)
    base = Row(model=found.workload.model, device=found.workload.device, level="", verdict="failed")
    for scenario in scenarios:
        for row in fact_rows(found, scenario):
            quoted = {
                (timed, share): one.value
                for timed, spread in row.spreads.items()
                for share, one in spread.percentiles.items()
                if one and one.is_sure
            }
            yield msgspec.structs.replace(
                base,
                level=row.level,
                verdict=verdicts[row.level],
                scenario=scenario,
                rate=row.rate,
                result=row.outcome,
                requests=row.requests,
                p50=quoted.get(("latency", 0.5)),
                p90=quoted.get(("latency", 0.9)),
                p99=quoted.get(("latency", 0.99)),
                p999=quoted.get(("latency", 0.999)),
                ttft_p50=quoted.get(("ttft", 0.5)),
                ttft_p90=quoted.get(("ttft", 0.9)),
                ttft_p99=quoted.get(("ttft", 0.99)),
                tpot_p50=quoted.get(("tpot", 0.5)),
                tpot_p90=quoted.get(("tpot", 0.9)),
                tpot_p99=quoted.get(("tpot", 0.99)),
                tokens_per_second=row.tokens_per_second,
                throughput=row.throughput,
                batch=row.batch,
                padding=row.padding,
                queue=row.queue,
                dropped=row.dropped,
                waiting=row.waiting,
                batcher=row.overhead,
                joules=row.joules,
            )
    for level in found.levels:
        if level.peak is not None and level.peak.rate is not None:
            rate = level.peak.rate
            yield msgspec.structs.replace(
                base,
                level=level.label,
                verdict=level.check.verdict,
                scenario="search",
                highest_rate=rate.value,
                highest_rate_low=rate.low,
                highest_rate_high=rate.high,
            )
        elif level.check.verdict != "match":
            yield msgspec.structs.replace(base, level=level.label, verdict=level.check.verdict)

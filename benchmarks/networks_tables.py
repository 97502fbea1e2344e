"""The tables of benchmarks/networks.py: a row for each race, and the means over networks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from golow.records.comparison import Ratio
from golow.records.workload import Device, Mode, Workload

MODES = {"infer": "Inference", "train": "Training"}


class Row(NamedTuple):
    """What one race brought. input: batch and size of a sample. gain: the best other's time over
    ours; over_eager: eager's. memory: ours over eager's. missing: why there is no gain."""

    model: str
    input: str
    device: Device
    mode: Mode
    precision: str
    ours: float | None = None
    best: str = ""
    other: float | None = None
    gain: Ratio | None = None
    over_eager: Ratio | None = None
    memory: float | None = None
    missing: str = ""


def input_size(workload: Workload) -> str:
    """``8x224`` for images and texts, ``8`` for samples without a length."""
    shape = workload.inputs[0].shape
    return f"{workload.batch}x{shape[-1]}" if len(shape) in (2, 4) else str(workload.batch)


def tables(rows: Sequence[Row], ours: str) -> Iterator[str]:
    """Lines of Markdown: the means, then a table for each mode and precision."""
    groups = dict.fromkeys((row.mode, row.precision) for row in rows)
    yield f"| | points | geometric mean of best / {ours} | another level is faster | no ratio |"
    yield "|---|---|---|---|---|"
    for mode, precision in groups:
        group = [row for row in rows if (row.mode, row.precision) == (mode, precision)]
        yield f"| {MODES[mode].lower()}, {precision} | {_mean(group)} |"
    for mode, precision in groups:
        group = [row for row in rows if (row.mode, row.precision) == (mode, precision)]
        yield from ("", f"### {MODES[mode]}, {precision}", "")
        yield from _table(group, ours)


def _mean(rows: Sequence[Row]) -> str:
    """Cells of one row of the means."""
    gains = [row.gain.value for row in rows if row.gain is not None]
    mean = f"{math.exp(math.fsum(map(math.log, gains)) / len(gains)):.2f}" if gains else "-"
    slower = sum(gain < 1 for gain in gains)
    return f"{len(rows)} | {mean} | {slower} | {len(rows) - len(gains)}"


def _table(rows: Sequence[Row], ours: str) -> Iterator[str]:
    """The largest gain first. Only on a CPU with eager: on a GPU eager waits for its host."""
    on_cpu = rows[0].device == "cpu"
    eager = " eager / ours |" if on_cpu else ""
    yield f"| network | input | `{ours}` | best other | | best / ours |{eager} memory / eager's |"
    yield "|---|---|---|---|---|---|---|" + ("---|" if on_cpu else "")
    for row in sorted(rows, key=lambda row: -row.gain.value if row.gain else math.inf):
        cells = [row.model, row.input]
        if row.gain is None:
            cells += ["-", row.missing or "too few rounds for a ratio", "-", "-"]
        else:
            cells += [_time(row.ours), _time(row.other), row.best, _ratio(row.gain)]
        cells += [_ratio(row.over_eager)] * on_cpu
        cells.append("-" if row.memory is None else f"{row.memory:.2f}")
        yield f"| {' | '.join(cells)} |"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.3g} ms"


def _ratio(found: Ratio | None) -> str:
    """``1.25 (1.21-1.30)``."""
    return "-" if found is None else f"{found.value:.2f} ({found.low:.2f}-{found.high:.2f})"

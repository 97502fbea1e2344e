"""The record of `unified_memory.py`: its types, and what is made of it: table, CSV and figure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from golow.measure.stats import level_time, ratio
from golow.records.comparison import Quantity, Ratio
from golow.records.record import Record
from golow.report.style import Caption, caption, drawing, legend_of, panels, save_figure
from golow.report.units import bytes_text, interval_text, seconds_text
from golow.storage.spreadsheet import to_csv

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

FORMAT = 1
FIGURE = "figures/unified-memory.svg"  # from the page
MARKS = "unified memory"  # of the part of the page that is written

# The baseline of the ratios: explicit copies as a careful program makes them.
BASELINE = "copy, pinned"

# Every way from the host's memory to the kernel, in the tables' order: what it does, and its look.
WAYS = {
    BASELINE: ("copied to the GPU from pinned memory", "#000000", "o", "-"),
    "copy, pageable": ("copied from ordinary memory", "#707070", "s", "--"),
    "managed": ("pages move when the kernel touches them", "#D55E00", "^", "-"),
    "prefetch": ("moved before the kernel by a prefetch", "#0072B2", "D", "-"),
    "read mostly": ("advised: both sides keep a copy", "#E69F00", "v", "--"),
    "read mostly, prefetch": ("both", "#56B4E9", "X", "--"),
    "stays on host": (
        "advised: preferred location host, mapped by the GPU",
        "#009E73",
        "P",
        "-",
    ),
}


class Traffic(Record, frozen=True, kw_only=True):
    """What one run made the driver do: groups of the GPU's page faults, page faults of the CPU, and
    the bytes that it moved."""

    gpu_faults: int
    cpu_faults: int
    to_device: int
    to_host: int


class Cell(Record, frozen=True, kw_only=True):
    """One way at one size with one kernel.

    seconds: of each round, from data that lies with the host to the result on the host, by the
    host's clock; kernel_seconds: of that the kernel, by the device's. passes: how often the kernel
    reads the data. traffic: of one further run, or None.
    """

    way: str
    passes: int
    bytes: int
    seconds: tuple[float, ...]
    kernel_seconds: tuple[float, ...]
    traffic: Traffic | None = None


class Measured(Record, frozen=True, kw_only=True):
    """A whole run. left_out: sizes and ways that were not measured, with the reason."""

    format: int = FORMAT
    date: str
    gpu: str
    driver: str
    processor: str
    cells: tuple[Cell, ...]
    left_out: tuple[str, ...] = ()
    no_traffic: str = ""


class Line(NamedTuple):
    """A cell's statistics: seconds with their 95% interval, the kernel's median seconds, and the
    ratio to the baseline, which is formed within the rounds."""

    cell: Cell
    time: Quantity
    kernel: float
    ratio: Ratio | None


def lines(found: Measured) -> list[Line]:
    """Every cell's statistics."""
    base = {(c.bytes, c.passes): c for c in found.cells if c.way == BASELINE}
    return [_line(cell, base.get((cell.bytes, cell.passes))) for cell in found.cells]


def _line(cell: Cell, base: Cell | None) -> Line:
    against = ratio(cell.seconds, base.seconds, seed=0) if base and base is not cell else None
    kernel = float(np.median(cell.kernel_seconds))
    return Line(cell, level_time(cell.seconds, seed=0), kernel, against)


# ---------------------------------------------------------------- CSV and Markdown


def csv_text(found: Measured) -> str:
    """A row for each cell."""
    return to_csv([_row(line) for line in lines(found)])


def _row(line: Line) -> dict[str, object]:
    cell, traffic = line.cell, line.cell.traffic
    return {
        "way": cell.way,
        "passes": cell.passes,
        "bytes": cell.bytes,
        "rounds": len(cell.seconds),
        "seconds": line.time.value,
        "seconds_low": line.time.low,
        "seconds_high": line.time.high,
        "kernel_seconds": line.kernel,
        "ratio": line.ratio.value if line.ratio else None,
        "ratio_low": line.ratio.low if line.ratio else None,
        "ratio_high": line.ratio.high if line.ratio else None,
        "gpu_fault_groups": traffic.gpu_faults if traffic else None,
        "cpu_faults": traffic.cpu_faults if traffic else None,
        "bytes_to_device": traffic.to_device if traffic else None,
        "bytes_to_host": traffic.to_host if traffic else None,
    }


def markdown(found: Measured) -> str:
    """The page's part: a table for each kernel, one of page faults, and what was left out."""
    said = (
        f"{found.gpu}, driver {found.driver}, {found.processor}, {found.date}. Medians of "
        f"{_rounds(found)} rounds. Numbers in brackets are times relative to copies from pinned "
        "memory; their 95% intervals are in the CSV file. The figure shows bytes per second; the "
        "bands are 95% intervals."
    )
    parts = [textwrap.fill(said, 118), f"![bytes per second over the size]({FIGURE})"]
    parts.append(tables(lines(found), found.no_traffic))
    parts += [f"Left out: {text}." for text in found.left_out]
    return "\n\n".join(parts) + "\n"


def tables(every: list[Line], no_traffic: str = "") -> str:
    """A table for each kernel, and one of page faults."""
    parts = []
    for passes in sorted({line.cell.passes for line in every}):
        rows = [line for line in every if line.cell.passes == passes]
        parts += [f"### {_title(passes)}", _times(rows)]
    return "\n\n".join([*parts, _traffic(every, no_traffic)])


def _title(passes: int) -> str:
    return f"A kernel that reads its data {'once' if passes == 1 else f'{passes} times'}"


def _rounds(found: Measured) -> str:
    counts = sorted({len(cell.seconds) for cell in found.cells})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _times(rows: list[Line]) -> str:
    sizes = sorted({line.cell.bytes for line in rows})
    cells = {(line.cell.way, line.cell.bytes): line for line in rows}
    return _table(
        ("", *(f"{size >> 20} MiB" for size in sizes)),
        (
            (way, *(_time(cells.get((way, size))) for size in sizes))
            for way in WAYS
            if any((way, size) in cells for size in sizes)
        ),
    )


def _time(line: Line | None) -> str:
    if line is None:
        return "-"
    against = f" ({line.ratio.value:.3g})" if line.ratio else ""
    return f"{seconds_text(line.time.value)}{against}"


def _traffic(every: list[Line], missing: str) -> str:
    if missing:
        return f"Page faults are not readable here: {missing}."
    largest = max((line.cell.bytes for line in every if line.cell.traffic), default=0)
    rows = [line.cell for line in every if line.cell.bytes == largest and line.cell.traffic]
    table = _table(
        ("", "reads", "GPU fault groups", "to the GPU", "CPU faults", "to the host"),
        (
            (
                cell.way,
                str(cell.passes),
                f"{cell.traffic.gpu_faults:,}",
                bytes_text(cell.traffic.to_device),
                f"{cell.traffic.cpu_faults:,}",
                bytes_text(cell.traffic.to_host),
            )
            for cell in rows
            if cell.traffic
        ),
    )
    size = bytes_text(largest)
    return f"Page faults and bytes moved in one run at {size}, as reported by CUPTI:\n\n{table}"


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    text = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in text)


# ---------------------------------------------------------------- the figure


def write_figure(found: Measured, folder: Path) -> list[Path]:
    """Draw ``unified-memory.svg`` into the folder. Raises `GolowError` without matplotlib."""
    return save_figure(figure_of(found), folder, "unified-memory", ("svg",))


@drawing()
def figure_of(found: Measured) -> Figure:
    """Bytes per second over the size, a panel for each kernel, bands from low to high."""
    every = lines(found)
    kernels = sorted({line.cell.passes for line in every})
    figure, axes = panels(len(kernels), (3.6, 3.0), "size of the data (MiB)", "GB/s")
    handles: dict[str, Line2D] = {}
    for passes, panel in zip(kernels, axes, strict=True):
        panel.set_title(_title(passes))
        panel.set(xscale="log", yscale="log")
        for way in WAYS:
            rows = [x for x in every if x.cell.way == way and x.cell.passes == passes]
            if rows:
                handles[way] = _draw(panel, way, rows)
        sizes = sorted({line.cell.bytes / 2**20 for line in every})
        panel.set_xticks(sizes, [f"{size:g}" for size in sizes], minor=False)
        panel.set_xticks([], minor=True)
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("")
    legend_of(figure, list(handles.values()))
    caption(figure, _caption(found))
    return figure


def _draw(panel: Axes, way: str, rows: list[Line]) -> Line2D:
    _, colour, marker, style = WAYS[way]
    rows = sorted(rows, key=lambda line: line.cell.bytes)
    x = [line.cell.bytes / 2**20 for line in rows]
    fast = [_rate(line, line.time.low or line.time.value) for line in rows]
    slow = [_rate(line, line.time.high or line.time.value) for line in rows]
    panel.fill_between(x, slow, fast, color=colour, alpha=0.15, linewidth=0)
    rates = [_rate(line, line.time.value) for line in rows]
    [drawn] = panel.plot(x, rates, color=colour, marker=marker, linestyle=style, label=way)
    return drawn


def _rate(line: Line, seconds: float) -> float:
    """Gigabytes per second."""
    return line.cell.bytes / seconds / 1e9


def _caption(found: Measured) -> Caption:
    what = "the size of the data over the time from data of the host to the result on the host"
    how = f"Medians of {_rounds(found)} interleaved rounds; bands: 95% intervals."
    return Caption([what, f"{found.gpu}, driver {found.driver}; {found.date}"], [how])


def summary(found: Measured) -> str:
    """A line for each cell, for the terminal."""
    return "\n".join(
        f"{line.cell.way:22}{line.cell.passes:3} x {bytes_text(line.cell.bytes):>9}"
        f"{seconds_text(line.time.value):>10} ({interval_text(line.time)}), "
        f"kernel {seconds_text(line.kernel)}"
        for line in lines(found)
    )

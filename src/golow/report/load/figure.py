"""The figures of a load test: latency over rate with a line per level, and how each level behaved
at the highest rate that it sustained: its latencies, its batches, and its queue over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from golow.programs.load.load_record import LevelLoad, LoadTest, Timed
from golow.report.console import visible
from golow.report.load.curves import (
    SEARCHED,
    batch_sizes,
    busiest,
    distribution,
    points,
    queue,
)
from golow.report.load.table import conditions, time_text
from golow.report.style import (
    Caption,
    Format,
    caption,
    drawing,
    legend,
    look,
    new_figure,
    panels,
    save_figure,
    say,
)
from golow.report.units import rate_text, seconds_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (3.5, 3.0)  # inches
LIMIT = "#A0A0A0"
FEW = 8  # batch sizes that have their own ticks


def write_figures(
    found: LoadTest, folder: Path, formats: Sequence[Format] = ("svg",)
) -> list[Path]:
    """Draw the figures into the folder; returns the files.

    Raises `GolowError` without matplotlib or when the folder cannot be written.
    """
    files = []
    if any(_has_rates(found, level) for level in found.levels):
        files += save_figure(rate_figure(found), folder, "load-rate", formats)
    if any(busiest(level) for level in found.levels):
        files += save_figure(busy_figure(found), folder, "load-busy", formats)
    return files


@drawing()
def rate_figure(found: LoadTest) -> Figure:
    """Latency over rate: a panel for the median, and one for the percentile that must hold; for
    texts, of both times."""
    shares = dict.fromkeys((0.5, found.plan.percentile))
    shown = [(timed, share) for timed in found.plan.timed for share in shares]
    figure, drawn = panels(len(shown), PANEL, "requests/s", "latency (ms)")
    for panel, (timed, share) in zip(drawn, shown, strict=False):
        panel.set_title(time_text(timed, share))
        _draw_rates(panel, found, timed, share)
    legend(figure, [level.label for level in found.levels if _has_rates(found, level)])
    reading = [
        "Bars: 99% ends. A percentile is drawn where early stopping allows it to be quoted.",
        "After a search, runs at nearly the same rate are one point.",
    ]
    caption(figure, Caption(_lines(found, "latency of requests over their rate"), reading))
    return figure


def _has_rates(found: LoadTest, level: LevelLoad) -> bool:
    return any(points(level, 0.5, timed) for timed in found.plan.timed)


def _draw_rates(panel: Axes, found: LoadTest, timed: Timed, share: float) -> None:
    some = False
    for level in found.levels:
        drawn = points(level, share, timed, 1.0 if found.plan.rates else SEARCHED)
        if not drawn:
            continue
        some = True
        colour, marker, line = look(level.label)
        values = [1e3 * one.latency for one in drawn]
        lows = [
            max(0.0, v - 1e3 * (one.low or one.latency))
            for v, one in zip(values, drawn, strict=True)
        ]
        highs = [max(0.0, 1e3 * one.high - v) for v, one in zip(values, drawn, strict=True)]
        panel.errorbar(
            [one.rate for one in drawn],
            values,
            yerr=[lows, highs],
            color=colour,
            marker=marker,
            linestyle=line,
            elinewidth=0.7,
        )
    if not some:
        say(panel, f"too few requests to quote {time_text(timed, share)}")
        return
    panel.set_yscale("log")
    _plain_ticks(panel)
    if (limit := found.plan.limits.get(timed)) is not None:
        panel.axhline(1e3 * limit, color=LIMIT, linestyle=(0, (4, 2)), linewidth=0.9)


@drawing()
def busy_figure(found: LoadTest) -> Figure:
    """Distribution, batch sizes and queue of each level at the highest rate that it sustained."""
    figure = new_figure(3 * PANEL[0], PANEL[1])
    shares, sizes, waiting = figure.subplots(1, 3)
    shown = [level for level in found.levels if busiest(level)]
    _draw_shares(shares, shown)
    _draw_sizes(sizes, shown)
    _draw_queues(waiting, shown)
    legend(figure, [level.label for level in shown])
    at = ", ".join(f"{one.level} at {rate_text(busiest(one)[0].rate or 0.0)}/s" for one in shown)
    lines = [*_lines(found, "each level at the highest rate that it sustained"), visible(at)]
    caption(figure, Caption(lines, ["Queue: of the last run, the maximum of each part."]))
    return figure


def _draw_shares(panel: Axes, shown: Sequence[LevelLoad]) -> None:
    """The share of requests that took longer, over the latency."""
    from matplotlib.ticker import FuncFormatter

    for level in shown:
        colour, _, line = look(level.label)
        drawn = distribution(busiest(level))
        times = [1e3 * one for one, _ in drawn]
        panel.plot(times, [share for _, share in drawn], color=colour, linestyle=line)
    panel.set(xscale="log", yscale="log", title="latencies")
    panel.set(xlabel="latency (ms)", ylabel="share of requests that took longer")
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
    _plain_ticks(panel)


def _draw_queues(panel: Axes, shown: Sequence[LevelLoad]) -> None:
    """The queue of each level's last run over time."""
    from matplotlib.ticker import MaxNLocator

    for level in shown:
        colour, _, line = look(level.label)
        moments = queue(busiest(level)[-1])
        times, left = [one for one, _ in moments], [left for _, left in moments]
        panel.plot(times, left, color=colour, linestyle=line, drawstyle="steps-post")
    panel.set(xlabel="time (s)", ylabel="requests left waiting", title="queue")
    panel.set_ylim(bottom=0, top=max(1.0, panel.get_ylim()[1]))
    panel.yaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_sizes(panel: Axes, shown: Sequence[LevelLoad]) -> None:
    """Bars side by side for each batch size."""
    from matplotlib.ticker import PercentFormatter

    width = 0.8 / max(1, len(shown))
    every = sorted({size for level in shown for size in batch_sizes(busiest(level))})
    for number, level in enumerate(shown):
        found = batch_sizes(busiest(level))
        places = [every.index(size) + (number + 0.5) * width - 0.4 for size in found]
        panel.bar(places, list(found.values()), width, color=look(level.label).colour)
    step = max(1, len(every) // FEW)
    panel.set(xlabel="samples in a batch", ylabel="share of batches", title="batch sizes")
    panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    panel.set_xticks(range(0, len(every), step), [str(size) for size in every[::step]])


def _plain_ticks(panel: Axes) -> None:
    """Milliseconds as 0.5, 2, 20 on a logarithmic axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes = [panel.yaxis] if panel.get_xscale() == "linear" else [panel.xaxis]
    for axis in axes:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _lines(found: LoadTest, what: str) -> list[str]:
    """Lines of a caption: what is shown, where and how it was measured."""
    shapes = ("x".join(map(str, item.shape[1:])) for item in found.workload.inputs)
    sizes = " and ".join(dict.fromkeys(shapes))
    limits = [seconds_text(limit) for limit in found.plan.limits.values()]
    limit = f", limit {' and '.join(limits)}" if limits else ""
    machine, *batcher = conditions(found).split("\n")
    return [
        visible(f"{found.workload.model}, {sizes}, {found.workload.device}: {what}{limit}"),
        visible(f"{machine}; {found.created[:10]}"),
        *map(visible, batcher),
    ]

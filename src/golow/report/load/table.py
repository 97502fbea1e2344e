"""A load test as tables of 100 columns at most: the levels, then each scenario, then the highest
rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.programs.load.early_stopping import PERCENTILES, Quoted
from golow.programs.load.load_record import LevelLoad, LoadTest, Scenario
from golow.programs.load.verdict import pooled
from golow.report.comparison.columns import STYLES
from golow.report.comparison.table import workload_text
from golow.report.console import level_text, wide_console
from golow.report.load.facts import Row, best_runs, rows
from golow.report.load.remarks import remarks
from golow.report.units import (
    MISSING,
    bytes_text,
    interval_text,
    joules_text,
    milliseconds_text,
    rate_text,
    ratio_text,
    seconds_text,
    share_text,
)

TITLES: dict[Scenario, str] = {
    "single-stream": "Single stream: the next request after each answer",
    "multi-stream": "Multi-stream: the next group of {streams} after each group's answers",
    "server": "Server: requests at random moments",
    "offline": "Offline: all requests at once",
}
UNCLEAR = "unclear"
LEVEL = 11  # characters of a name that are never broken
SHOWN = PERCENTILES[:3]  # at the highest rate


def render(found: LoadTest, console: Console | None = None) -> None:
    """Print the load test."""
    console = console or wide_console()
    console.print(Text(heading(found), style="bold"))
    console.print(Text(conditions(found), style="dim"))
    console.print(level_table(found))
    for scenario in found.plan.scenarios:
        listed = list(rows(found, scenario))
        if listed:
            console.print(Text(title(found, scenario), style="bold"))
            console.print(scenario_table(scenario, listed))
            console.print(served_table(scenario, listed))
            for line in differences(listed):
                console.print(Text(line))
    if any(level.peak for level in found.levels):
        console.print(Text(peak_title(found), style="bold"))
        console.print(peak_table(found))
    for reason in reasons(found):
        console.print(Text(reason))
    for remark in remarks(found):
        console.print(Text(f"note: {remark}", style="dim"))


def heading(found: LoadTest) -> str:
    """The workload in one line."""
    return f"{workload_text(found.workload)}, under load"


def conditions(found: LoadTest) -> str:
    """Machine, batcher and runs."""
    plan, machine = found.plan, found.environment
    threads = f"{found.workload.threads} thread{'s' if found.workload.threads != 1 else ''}"
    contexts = " and ".join(map(str, plan.contexts))
    contexts += f" context{'s' if plan.contexts != (1,) else ''}"
    torch = machine.versions.get("torch", "?")
    searched = (len(level.peak.rounds) for level in found.levels if level.peak)
    rounds = max(plan.repeats, *searched, 1)
    holds = f"; {percentile_text(plan.percentile)} within {seconds_text(plan.latency)}"
    return "\n".join(
        (
            f"{machine.cpu_model}, {threads} per level, torch {torch}, {found.generator}",
            f"batches of up to {plan.most}, compiled for {', '.join(map(str, plan.buckets))}, "
            f"delay of up to {seconds_text(plan.delay) if plan.delay else '0'}, {contexts}",
            f"{found.samples} samples{_lengths(found)}, "
            f"runs of {seconds_text(plan.seconds)} or longer, "
            f"{rounds} round{'s' if rounds != 1 else ''} in turn"
            f"{holds if plan.latency is not None else ''}",
        )
    )


def _lengths(found: LoadTest) -> str:
    if found.plan.lengths is None:
        return ""
    shortest, longest = found.plan.lengths
    sizes = ", ".join(map(str, found.plan.length_buckets))
    return f" of {shortest} to {longest} tokens, compiled for {sizes}"


def title(found: LoadTest, scenario: Scenario) -> str:
    """Title of a scenario."""
    return TITLES[scenario].format(streams=found.plan.streams)


def percentile_text(share: float) -> str:
    """``p99``, ``p99.9``"""
    return f"p{100 * share:g}"


def level_table(found: LoadTest) -> Table:
    """One row per level: its verdict, and what it holds."""
    table = framed("level")
    for name in ("verdict", "built in", "resident", "peak under load", "answers checked"):
        table.add_column(name, justify="right", no_wrap=True)
    for level in found.levels:
        sizes = {item.name: item.value for item in level.memory}
        table.add_row(
            level_text(level.label),
            Text(level.check.word, style=STYLES[level.check.verdict]),
            seconds_text(level.build),
            bytes_text(sizes.get("resident")),
            bytes_text(sizes.get("resident_peak")),
            f"{found.samples + sum(run.checked for run in level.runs):,}"
            if level.check.verdict == "match"
            else MISSING,
        )
    return table


def scenario_table(scenario: Scenario, listed: list[Row]) -> Table:
    """One row per level, at each rate: latencies, rates and energy."""
    names = [] if scenario == "offline" else [f"{percentile_text(p)}\nms" for p in PERCENTILES]
    names += ["samples\n/s", "energy per\nrequest"]
    if scenario == "server":
        names = ["result", *names]
    return _by_rate(scenario, listed, names, _outcome_cells)


def served_table(scenario: Scenario, listed: list[Row]) -> Table:
    """One row per level, at each rate: how the batcher served the requests."""
    names = ["batch", "padding", "queue", "dropped", "level\nbusy", "wait\nms", "batcher\nms"]
    return _by_rate(scenario, listed, names, _served_cells)


def _by_rate(
    scenario: Scenario,
    listed: list[Row],
    names: Sequence[str],
    cells: Callable[[Row], Iterator[str]],
) -> Table:
    server = scenario == "server"
    table = framed("level")
    for name in [*(["rate\nasked"] if server else []), *names]:
        table.add_column(name, justify="right", no_wrap=True)
    before: float | None = None
    for row in listed:
        if before is not None and row.rate != before:
            table.add_section()
        before = row.rate
        rate = [rate_text(row.rate or 0.0)] if server else []
        table.add_row(level_text(row.level), *rate, *cells(row))
    return table


def _outcome_cells(row: Row) -> Iterator[str]:
    if row.scenario == "server":
        yield row.outcome
    if row.scenario != "offline":
        yield from (percentile_cell(row.percentiles[share]) for share in PERCENTILES)
    yield rate_text(row.throughput) if row.throughput is not None else MISSING
    yield joules_text(row.joules)


def _served_cells(row: Row) -> Iterator[str]:
    yield f"{row.batch:.1f}" if row.batch is not None else MISSING
    yield share_text(row.padding)
    yield f"{row.queue:,}" if row.queue is not None else MISSING
    yield f"{row.dropped:,}"
    yield share_text(row.busy)
    yield milliseconds_text(row.waiting) if row.waiting is not None else MISSING
    yield milliseconds_text(row.overhead) if row.overhead is not None else MISSING


def percentile_cell(found: Quoted | None) -> str:
    """The percentile, if early stopping allows it."""
    if found is None:
        return MISSING
    return milliseconds_text(found.value) if found.is_sure else UNCLEAR


def differences(listed: Sequence[Row]) -> Iterator[str]:
    """How latencies differ from the first level's, in a line for each rate."""
    for rate, group in groupby(listed, key=lambda row: row.rate):
        first, *others = group
        parts = []
        for row in others:
            words = ", ".join(
                f"{percentile_text(share)} {row.apart[share]}"
                for share in PERCENTILES
                if row.apart[share] != UNCLEAR
            )
            parts += [f"{row.level} {words}"] if words else []
        if parts and first.scenario != "offline":
            at = f"at {rate_text(rate)}/s, " if rate else ""
            yield f"{at}against {first.level}: {'; '.join(parts)}"


def peak_title(found: LoadTest) -> str:
    """Title of the search."""
    plan = found.plan
    return (
        f"The highest rate at which {percentile_text(plan.percentile)} is within "
        f"{seconds_text(plan.latency)}"
    )


def peak_table(found: LoadTest) -> Table:
    """One row per level that was searched."""
    table = framed("level")
    over = f"over\n{first_searched(found)}"
    names = ("requests\n/s", "(95%)", over, "", *(f"{percentile_text(p)}\nms" for p in SHOWN))
    for name in (*names, "batch"):
        table.add_column(name, justify="right", no_wrap=True)
    for level in found.levels:
        if level.peak is not None:
            table.add_row(level_text(level.label), *_peak_cells(level))
    return table


def first_searched(found: LoadTest) -> str:
    """The level that ratios of rates are to."""
    return next((one.label for one in found.levels if one.peak and one.peak.rate), MISSING)


def _peak_cells(level: LevelLoad) -> Iterator[str]:
    peak = level.peak
    if peak is None or peak.rate is None:
        yield from (UNCLEAR if peak and "unclear" in peak.reason else "none", *[MISSING] * 7)
        return
    yield rate_text(peak.rate.value)
    yield interval_text(peak.rate)
    yield ratio_text(peak.ratio.value) if peak.ratio else MISSING
    yield WORDS[peak.ratio.word] if peak.ratio else MISSING
    runs = best_runs(level)
    yield from (percentile_cell(pooled(runs, share)) for share in SHOWN)
    sizes = [batch.size for run in runs for batch in run.batches]
    yield f"{sum(sizes) / len(sizes):.1f}" if sizes else MISSING


WORDS = {"faster": "higher", "slower": "lower", "same": "same", "unclear": UNCLEAR}


def reasons(found: LoadTest) -> Iterator[str]:
    """Why levels were not loaded, or failed under load, or hold no rate."""
    for level in found.levels:
        if level.check.verdict != "match":
            yield f"{level.label}: {level.check.verdict}: {level.check.words}"
        for run in level.runs:
            if run.outcome == "failed":
                at = f" at {rate_text(run.rate)} requests/s" if run.rate else ""
                yield f"{level.label}: failed in {run.scenario}{at}: {run.reason}"
        if level.peak is not None and level.peak.rate is None:
            yield f"{level.label}: no rate: {level.peak.reason}"


def framed(first: str) -> Table:
    """An empty table in the style of load tests, whose first column has names."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, header_style="bold")
    table.add_column(first, overflow="fold", min_width=LEVEL)
    return table

"""A load test as tables of 100 columns at most: the levels, then each scenario, then the highest
rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.programs.load.early_stopping import PERCENTILES, Quoted
from golow.programs.load.load_record import LevelLoad, LoadPlan, LoadTest, Scenario, Timed
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
            console.print(scenario_table(found.plan, listed))
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
    work, texts = found.workload, found.plan.texts
    if texts is None:
        return f"{workload_text(work)}, under load"
    precision = "float32" if work.precision == "default" else work.precision
    return (
        f"{work.model}, {texts.tokens} tokens after {_span(texts.prompt)}, {precision}, "
        f"{work.parameters:,} parameters, under load"
    )


def conditions(found: LoadTest) -> str:
    """Machine, batcher and runs."""
    plan, machine = found.plan, found.environment
    threads = f"{found.workload.threads} thread{'s' if found.workload.threads != 1 else ''}"
    contexts = " and ".join(map(str, plan.contexts))
    contexts += f" context{'s' if plan.contexts != (1,) else ''}"
    torch = machine.versions.get("torch", "?")
    searched = (len(level.peak.rounds) for level in found.levels if level.peak)
    rounds = max(plan.repeats, *searched, 1)
    before = "; " if plan.texts is None else "\n"
    holds = f"{before}{limits_text(plan)}" if plan.limits else ""
    return "\n".join(
        (
            f"{machine.cpu_model}, {threads} per level, torch {torch}, {found.generator}",
            f"batches of up to {plan.most}, compiled for {', '.join(map(str, plan.buckets))}, "
            f"delay of up to {seconds_text(plan.delay) if plan.delay else '0'}, {contexts}",
            f"{found.samples} samples{_lengths(found)}, "
            f"runs of {seconds_text(plan.seconds)} or longer, "
            f"{rounds} round{'s' if rounds != 1 else ''} in turn{holds}",
        )
    )


def _lengths(found: LoadTest) -> str:
    if found.plan.lengths is None:
        return ""
    sizes = ", ".join(map(str, found.plan.length_buckets))
    return f" of {_span(found.plan.lengths)} tokens, compiled for {sizes}"


def _span(limits: tuple[int, int]) -> str:
    shortest, longest = limits
    return f"{shortest} to {longest}" if shortest != longest else f"{longest}"


def title(found: LoadTest, scenario: Scenario) -> str:
    """Title of a scenario."""
    return TITLES[scenario].format(streams=found.plan.streams)


def limits_text(plan: LoadPlan, within: str = "within") -> str:
    """``p99 within 20.0 ms``; of texts ``TTFT p99 within 200 ms, TPOT p99 within 20.0 ms``."""
    return ", ".join(
        f"{time_text(timed, plan.percentile)} {within} {seconds_text(limit)}"
        for timed, limit in plan.limits.items()
    )


def time_text(timed: Timed, share: float) -> str:
    """``p99`` of the latency of an answer, ``TTFT p99`` of a text."""
    text = percentile_text(share)
    return text if timed == "latency" else f"{timed.upper()} {text}"


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


def scenario_table(plan: LoadPlan, listed: list[Row]) -> Table:
    """One row per level, at each rate: latencies, rates and energy."""
    scenario, times = listed[0].scenario, shown_times(plan)
    names = [] if scenario == "offline" else [_column(*one) for one in times]
    names += ["samples\n/s"] if plan.texts is None else ["requests\n/s", "tokens\n/s"]
    names += ["energy per\nrequest"]
    if scenario == "server":
        names = ["result", *names]
    return _by_rate(scenario, listed, names, partial(_outcome_cells, times=times))


def shown_times(plan: LoadPlan) -> list[tuple[Timed, float]]:
    """The times of a request and their percentiles that tables have columns for."""
    shares = PERCENTILES if plan.texts is None else sorted({0.5, plan.percentile, 0.99})
    return [(timed, share) for timed in plan.timed for share in shares]


def _column(timed: Timed, share: float) -> str:
    return "\n".join((*time_text(timed, share).split(), "ms"))


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
    for name in [*(["target\nrate"] if server else []), *names]:
        table.add_column(name, justify="right", no_wrap=True)
    before: float | None = None
    for row in listed:
        if before is not None and row.rate != before:
            table.add_section()
        before = row.rate
        rate = [rate_text(row.rate or 0.0)] if server else []
        table.add_row(level_text(row.level), *rate, *cells(row))
    return table


def _outcome_cells(row: Row, times: Sequence[tuple[Timed, float]]) -> Iterator[str]:
    if row.scenario == "server":
        yield row.outcome
    if row.scenario != "offline":
        for timed, share in times:
            yield percentile_cell(row.spreads[timed].percentiles[share])
    yield rate_text(row.throughput) if row.throughput is not None else MISSING
    if row.tokens:
        yield rate_text(row.tokens_per_second) if row.tokens_per_second else MISSING
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
                f"{time_text(timed, share)} {apart}"
                for timed, spread in row.spreads.items()
                for share, apart in spread.apart.items()
                if apart != UNCLEAR
            )
            parts += [f"{row.level} {words}"] if words else []
        if parts and first.scenario != "offline":
            at = f"at {rate_text(rate)}/s, " if rate else ""
            yield f"{at}against {first.level}: {'; '.join(parts)}"


def peak_title(found: LoadTest) -> str:
    """Title of the search."""
    return f"The highest rate at which {limits_text(found.plan, 'is within')}"


def peak_table(found: LoadTest) -> Table:
    """One row per level that was searched."""
    table = framed("level")
    over = f"over\n{first_searched(found)}"
    times = _peak_times(found.plan)
    names = ("requests\n/s", "(95%)", over, "", *(_column(*one) for one in times))
    for name in (*names, "batch"):
        table.add_column(name, justify="right", no_wrap=True)
    for level in found.levels:
        if level.peak is not None:
            table.add_row(level_text(level.label), *_peak_cells(level, times))
    return table


def _peak_times(plan: LoadPlan) -> list[tuple[Timed, float]]:
    shares = SHOWN if plan.texts is None else sorted({0.5, plan.percentile})
    return [(timed, share) for timed in plan.timed for share in shares]


def first_searched(found: LoadTest) -> str:
    """The level that ratios of rates are to."""
    return next((one.label for one in found.levels if one.peak and one.peak.rate), MISSING)


def _peak_cells(level: LevelLoad, times: Sequence[tuple[Timed, float]]) -> Iterator[str]:
    peak = level.peak
    if peak is None or peak.rate is None:
        rest = [MISSING] * (4 + len(times))
        yield from (UNCLEAR if peak and "unclear" in peak.reason else "none", *rest)
        return
    yield rate_text(peak.rate.value)
    yield interval_text(peak.rate)
    yield ratio_text(peak.ratio.value) if peak.ratio else MISSING
    yield WORDS[peak.ratio.word] if peak.ratio else MISSING
    runs = best_runs(level)
    yield from (percentile_cell(pooled(runs, share, timed)) for timed, share in times)
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

"""``golow load``: the rate at which each level meets a latency limit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from golow.commands.json_output import require_json, write_json
from golow.commands.keeping import keep
from golow.commands.options import (
    JsonFile,
    LevelNames,
    Model,
    Out,
    PrecisionName,
    PrecisionOption,
    ReportFile,
    counts,
    duration,
    names,
    numbers,
    span,
)
from golow.commands.quiet import prints_to_stderr
from golow.commands.workload_flags import (
    ExecutionFlags,
    NetworkFlags,
    PublishedFlags,
    SampleFlags,
    workload_options,
)
from golow.report.console import PlainConsole, wide_console

if TYPE_CHECKING:
    from golow.api import LoadTestResult


def load(
    model: Model,
    *,
    inputs: SampleFlags,
    levels: LevelNames = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated: single-stream, multi-stream, server, offline.  [default: "
            "single-stream,offline, and server with --latency or --rate]",
            show_default=False,
        ),
    ] = None,
    latency: Annotated[
        str | None,
        typer.Option(
            help="Latency limit, such as 20ms; without --rate, golow searches for the "
            "highest rate that stays within it."
        ),
    ] = None,
    percentile: Annotated[
        float, typer.Option(help="Percentage of requests that must stay within the latency limit.")
    ] = 99.0,
    rate: Annotated[
        str | None,
        typer.Option(help="Requests per second in the server scenario, such as 50,100,200."),
    ] = None,
    ttft: Annotated[
        str | None,
        typer.Option(
            help="For a model that generates text: limit on the time to the first token, such as "
            "200ms."
        ),
    ] = None,
    tpot: Annotated[
        str | None,
        typer.Option(
            help="For text generation: limit on the mean time per later token, such as 20ms."
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="For text generation: tokens in a prompt, or a range, such as 16..64.  "
            "[default: 64]",
            show_default=False,
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            help="For text generation: tokens that each request generates.  [default: 64]",
            show_default=False,
        ),
    ] = None,
    max_batch: Annotated[
        int | None,
        typer.Option(
            help="Largest number of samples in a batch.  [default: 8; for texts 1]",
            show_default=False,
        ),
    ] = None,
    delay: Annotated[
        str, typer.Option(help="Longest time that a request waits for others to fill its batch.")
    ] = "2ms",
    contexts: Annotated[
        str,
        typer.Option(
            help="Batches that run at the same time; 1,2 tests each level with one and with two."
        ),
    ] = "1",
    seconds: Annotated[
        float,
        typer.Option(
            help="Seconds of each run; a run takes up to six times as long if the percentile needs "
            "more requests."
        ),
    ] = 5.0,
    repeats: Annotated[
        int,
        typer.Option(
            help="Rounds, in each of which every level runs once; comparing levels takes at "
            "least two. A search for the highest rate runs at least five."
        ),
    ] = 3,
    patience: Annotated[
        str, typer.Option(help="Give up on a level that has not answered for this long.")
    ] = "10s",
    url: Annotated[
        str,
        typer.Option(
            help="Send the requests to a service that runs the same model, such as "
            "http://localhost:8000; --levels adds levels to compare it with.",
            show_default=False,
        ),
    ] = "",
    network: NetworkFlags,
    published: PublishedFlags,
    execution: ExecutionFlags,
    precision: PrecisionOption = PrecisionName.default,
    out: Out = Path("runs"),
    json: JsonFile = None,
    report: ReportFile = None,
) -> None:
    """Send requests with MLPerf's load generator, and find the highest rate at which each level
    meets a latency limit.

    All answers of a level are checked before it is timed. The exit status is 1 when a level differs
    or fails.
    """
    from golow import api
    from golow.programs.comparison import store
    from golow.report.progress import ProgressDisplay

    store.require_writable(out)
    require_json(json)
    with ProgressDisplay(PlainConsole(stderr=True)) as display:
        try:
            with prints_to_stderr():
                result = api.load_test(
                    model,
                    levels=names(levels),
                    **workload_options(inputs.inputs(), network, published, execution),
                    threads=execution.threads,
                    precision=precision.value,
                    scenarios=names(scenario),
                    latency=None if latency is None else duration("--latency", latency),
                    percentile=percentile,
                    rates=numbers("--rate", rate),
                    ttft=None if ttft is None else duration("--ttft", ttft),
                    tpot=None if tpot is None else duration("--tpot", tpot),
                    prompt=None if prompt is None else span("--prompt", prompt),
                    tokens=tokens,
                    max_batch=max_batch,
                    delay=duration("--delay", delay),
                    contexts=counts("--contexts", contexts),
                    lengths=inputs.lengths(),
                    seconds=seconds,
                    repeats=repeats,
                    patience=duration("--patience", patience),
                    url=url,
                    observer=display,
                )
        except api.LoadTestInterrupted as stopped:
            display.close()
            keep(stopped.result, partial(_show, json=json), out, json, report)
            raise typer.Exit(130) from None
    keep(result, partial(_show, json=json), out, json, report)
    raise typer.Exit(1 if any(level.failed for level in result.test.levels) else 0)


def _show(result: LoadTestResult, json: str | None) -> None:
    from golow.report.load.table import render

    to_pipe = json == "-"
    render(result.test, wide_console(stderr=True) if to_pipe else None)
    write_json(result.test, json)

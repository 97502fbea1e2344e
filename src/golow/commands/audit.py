"""``golow audit``: settings left at their default that would make a model faster."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from golow.commands.json_output import beside_json, require_json, write_json
from golow.commands.keeping import keep
from golow.commands.options import (
    JsonFile,
    LevelNames,
    Model,
    Out,
    PrecisionName,
    PrecisionOption,
    ReportFile,
    names,
)
from golow.commands.quiet import prints_to_stderr
from golow.commands.workload_flags import (
    ExecutionFlags,
    InputFlags,
    OptimizerFlags,
    PublishedFlags,
    TrainedNetworkFlags,
    optimizer_of,
    workload_options,
)
from golow.records.errors import GolowError
from golow.report.console import PlainConsole, wide_console

if TYPE_CHECKING:
    from golow.api import AuditResult

BEST = "best"


def audit(
    model: Model,
    *,
    inputs: InputFlags,
    levels: LevelNames = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Try only the most promising choices.")
    ] = False,
    apply: Annotated[
        str | None,
        typer.Option(
            help="best: also search for the best combination of choices at each level, and race it "
            "against the defaults.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Race time for each level and alternative, in seconds.")
    ] = 5.0,
    network: TrainedNetworkFlags,
    optimizer: OptimizerFlags,
    published: PublishedFlags,
    execution: ExecutionFlags,
    precision: PrecisionOption = PrecisionName.default,
    out: Out = Path("runs"),
    json: JsonFile = None,
    report: ReportFile = None,
) -> None:
    """Find settings left at their default that, if changed, would make this model faster.

    Every alternative is checked at every level, then raced against the level's defaults. The exit
    status is 1 when a level differs or fails with its defaults.
    """
    from golow import api
    from golow.programs.comparison import store
    from golow.report.audit.progress import AuditProgressDisplay

    if apply not in (None, BEST):
        raise GolowError(f"--apply does not accept {apply!r}", f"use --apply {BEST}.")
    store.require_writable(out)
    require_json(json)
    with AuditProgressDisplay(PlainConsole(stderr=True)) as display:
        try:
            with prints_to_stderr():
                result = api.audit(
                    model,
                    levels=names(levels),
                    **workload_options(inputs, network, published, execution),
                    optimizer=optimizer_of(optimizer, inputs.mode),
                    threads=execution.threads,
                    precision=precision.value,
                    quick=quick,
                    best=apply == BEST,
                    seconds=seconds,
                    observer=display,
                )
        except api.AuditInterrupted as stopped:
            display.close()
            keep(stopped.result, partial(_show, json=json, searched=False), out, json, report)
            raise typer.Exit(130) from None
        except api.ErrorWithResult as failed:
            display.close()
            keep(failed.result, partial(_show, json=json, searched=False), out, json, report)
            raise
    keep(result, partial(_show, json=json, searched=apply == BEST), out, json, report)
    verdicts = {level.run.check.verdict for level in result.audit.levels}
    raise typer.Exit(1 if {"differs", "failed"} & verdicts else 0)


def _show(result: AuditResult, json: str | None, searched: bool) -> None:
    from golow.report.audit.table import render

    to_pipe = json == "-"
    console = wide_console(stderr=True) if to_pipe else None
    render(result.audit, console)
    if searched and all(level.best is None for level in result.audit.levels):
        told = beside_json(json)
        print("There is no best combination: no alternative makes a level faster.", file=told)
    write_json(result.audit, json)

"""``golow compare``: run a model at every level."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from golow.commands.gate import Gate
from golow.commands.json_output import require_json, write_json
from golow.commands.keeping import shown_and_saved
from golow.commands.look import Look
from golow.commands.options import (
    Calibrate,
    Columns,
    ComparedPrecision,
    ComparedPrecisionName,
    FormatName,
    FormatOption,
    JsonFile,
    LevelNames,
    Model,
    Out,
    ReportFile,
    Workers,
    names,
    workers,
)
from golow.commands.quiet import prints_to_stderr
from golow.commands.workload_flags import (
    ExecutionFlags,
    InputFlags,
    OptimizerFlags,
    PublishedFlags,
    RanksFlags,
    TrainedNetworkFlags,
    optimizer_of,
    ranks_of,
    workload_options,
)
from golow.programs.life.settings import LifeSettings
from golow.records.errors import GolowError
from golow.report.console import PlainConsole, wide_console

if TYPE_CHECKING:
    from golow.api import Result


def compare(
    model: Model,
    *,
    inputs: InputFlags,
    levels: LevelNames = None,
    worker: Workers = None,
    network: TrainedNetworkFlags,
    optimizer: OptimizerFlags,
    execution: ExecutionFlags,
    ranks: RanksFlags,
    precision: ComparedPrecision = ComparedPrecisionName.default,
    calibrate: Calibrate = None,
    published: PublishedFlags,
    cold: Annotated[
        bool, typer.Option("--cold", help="Empty the GPU's L2 cache before each timed iteration.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(help="Target width of each ratio's 95% interval, as a share of the ratio."),
    ] = 0.02,
    time_limit: Annotated[
        float,
        typer.Option(
            help="Time limit of the race in seconds; a slow model may take up to twice that to "
            "finish 5 rounds."
        ),
    ] = 60.0,
    allow_differs: Annotated[
        bool, typer.Option(help="Also time levels that fail the check; the table marks them.")
    ] = False,
    locate: Annotated[
        bool,
        typer.Option(
            "--locate",
            help="Where a level differs, find the first operation whose result is off; builds the "
            "level a few times.",
        ),
    ] = False,
    by_layer: Annotated[
        bool, typer.Option("--by-layer", help="Also show each level's time by layer.")
    ] = False,
    life: Annotated[
        bool,
        typer.Option(
            "--life",
            help="Also measure each level's life cycle: import, capture, build, load, first "
            "iterations, end, and the cost of another batch size.",
        ),
    ] = False,
    life_rounds: Annotated[
        int,
        typer.Option(
            help="With --life: life cycles of each level with a cold and with a warm cache."
        ),
    ] = LifeSettings.rounds,
    life_cold: Annotated[
        bool,
        typer.Option(help="With --life: also build everything in empty caches."),
    ] = True,
    out: Out = Path("runs"),
    json: JsonFile = None,
    report: ReportFile = None,
    columns: Columns = None,
    format: FormatOption = FormatName.table,
    against: Annotated[
        Path | None,
        typer.Option(help="Also show what changed since this recorded comparison."),
    ] = None,
    fail_above: Annotated[
        str | None,
        typer.Option(
            help="With --against: exit with status 1 if a level is slower than in that comparison, "
            "with confidence, by more than this share, such as 5%."
        ),
    ] = None,
) -> None:
    """Run a model at every level: check that the levels agree and measure what each one costs.

    The exit status is 0 when every level that can run here matches, and 1 when one differs or
    fails, or when one is slower than --fail-above allows.
    """
    from golow import api
    from golow.programs.comparison import store
    from golow.report.progress import ProgressDisplay

    if not life and (life_rounds != LifeSettings.rounds or not life_cold):
        raise GolowError("--life-rounds and --no-life-cold need --life", "add --life.")
    look = Look(names(columns) or [], format.value)
    look.require(json)
    gate = Gate.of(against, fail_above)
    store.require_writable(out)
    require_json(json)
    with ProgressDisplay(PlainConsole(stderr=True)) as display:
        try:
            with prints_to_stderr():
                result = api.compare(
                    model,
                    **workload_options(inputs, network, published, execution),
                    levels=names(levels),
                    workers=workers(worker or []),
                    optimizer=optimizer_of(optimizer, inputs.mode),
                    threads=execution.threads,
                    ranks=ranks_of(ranks, execution.device),
                    precision=precision.value,
                    calibrate=calibrate,
                    cold=cold,
                    interval=interval,
                    time_limit=time_limit,
                    allow_differs=allow_differs,
                    locate=locate,
                    by_layer=by_layer,
                    life=life,
                    life_rounds=life_rounds,
                    life_cold=life_cold,
                    observer=display,
                )
        except api.Interrupted as stopped:
            display.close()
            _show_and_save(stopped.result, out, json, look, report)
            raise typer.Exit(130) from None
        except api.ErrorWithResult as failed:
            display.close()
            _show_and_save(failed.result, out, json, look, report)
            raise
    _show_and_save(result, out, json, look, report)
    bad = any(run.check.verdict in ("differs", "failed") for run in result.comparison.runs)
    bad = bad or (result.life is not None and any(one.failed for one in result.life.cycle.levels))
    if gate is not None:
        bad = gate.closes(result.comparison, to_stderr=json == "-" or look.is_document) or bad
    raise typer.Exit(1 if bad else 0)


def _show(result: Result, json: str | None, look: Look) -> None:
    from golow.report.life import table as life
    from golow.report.quantization import table as quantization

    console = wide_console(stderr=True) if json == "-" else None
    look.show(result.comparison, console)
    if result.life is not None and not look.is_document:
        life.render(result.life.cycle, console)
    if result.quantization is not None and not look.is_document:
        quantization.render(result.quantization.quantization, console)
    write_json(result.comparison, json)


def _show_and_save(
    result: Result, out: Path, json: str | None, look: Look, report: Path | None
) -> None:
    """Show the results, save them, then write what else was requested."""
    from golow.report.html_report import write_report

    folder = shown_and_saved(lambda: _show(result, json, look), result.save, out)
    told = sys.stderr if json == "-" or look.is_document else sys.stdout
    print(f"record: {folder}", file=told)
    if result.life is not None and find_spec("matplotlib") is not None:
        result.life.figures(folder)
    if report is not None:
        print(f"report: {write_report([folder], report)}", file=told)

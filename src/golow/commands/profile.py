"""``golow profile``: where a step's time goes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from golow.commands.keeping import rescued
from golow.commands.options import (
    LevelNames,
    ProfileBy,
    ProfileSort,
    ProfileTop,
    ReportFile,
    Workers,
    folder_place,
    names,
    require_no_rule,
    workers,
)
from golow.commands.quiet import prints_to_stderr
from golow.commands.typed_options import refuse_beside, refuse_others
from golow.commands.workload_flags import (
    ExecutionFlags,
    InputFlags,
    PublishedFlags,
    RanksFlags,
    TrainedNetworkFlags,
    ranks_of,
    workload_options,
)
from golow.records.errors import GolowError
from golow.records.workload import Precision
from golow.report.console import PlainConsole

if TYPE_CHECKING:
    from golow.api import ProfileResult


WITH_DIFF = ("diff", "by", "top")
"""Parameters that have an effect on the difference of two profiles."""
OF_STEPS = ("by", "sort", "steps", "by_shape")
"""Parameters of profiled steps."""


def profile(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(
            help="A model from `golow models`, or file.py:Name, package.module:name, file.pt2; "
            "none with --diff.",
            show_default=False,
        ),
    ] = None,
    *,
    inputs: InputFlags,
    levels: LevelNames = None,
    worker: Workers = None,
    network: TrainedNetworkFlags,
    published: PublishedFlags,
    execution: ExecutionFlags,
    ranks: RanksFlags,
    precision: Annotated[
        str,
        typer.Option(help="Precision that every level uses, or several, such as default,bf16."),
    ] = "default",
    steps: Annotated[int, typer.Option(help="Profiled steps of each level.")] = 5,
    time_limit: Annotated[
        float, typer.Option(help="Time limit of the race without a profiler, in seconds.")
    ] = 10.0,
    by: ProfileBy = "operator",
    by_shape: Annotated[
        bool, typer.Option("--by-shape", help="Separate operators by the shapes of their inputs.")
    ] = False,
    sort: ProfileSort = "time",
    top: ProfileTop = 10,
    way_down: Annotated[
        str | None,
        typer.Option(
            metavar="LAYER",
            help="Instead of a profile: the frames and instructions between the call of this "
            "layer, such as layer1.0.conv1, and the vendor's routine. CPU only; needs Valgrind.",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the profile, tables (CSV), figures, and the levels' traces, which "
            "Perfetto opens.",
            callback=folder_place,
        ),
    ] = None,
    report: ReportFile = None,
    diff: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            help="Instead, show what changed from one saved profile to another.",
            metavar="BEFORE AFTER",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show where a step's time and memory go, at every level.

    The levels are checked and timed first, without a profiler.
    """
    from golow import api
    from golow.report.profiling.table import require_view
    from golow.report.progress import ProgressDisplay

    require_view(by, sort)
    if diff is not None:
        _require_alone(model, save, report)
        refuse_others(context, "--diff", "compares two saved profiles", WITH_DIFF)
        before, after = (api.load_profile(folder) for folder in diff)
        before.diff(after).table(by=by, top=top, names=(str(diff[0]), str(diff[1])))
        return
    if way_down is not None:
        refuse_beside(context, "--way-down", "counts the calls of one layer", OF_STEPS)
    if model is None:
        raise GolowError(
            "golow profile needs a model, or two saved profiles",
            "for example: golow profile lenet5, or golow profile --diff out/a out/b",
        )
    wanted = [_precision(name) for name in names(precision) or []]
    with ProgressDisplay(PlainConsole(stderr=True)) as display:
        try:
            with prints_to_stderr():
                result = api.profile(
                    model,
                    **workload_options(inputs, network, published, execution),
                    levels=names(levels),
                    workers=workers(worker or []),
                    threads=execution.threads,
                    ranks=ranks_of(ranks, execution.device),
                    precisions=wanted,
                    steps=steps,
                    time_limit=time_limit,
                    by_shape=by_shape,
                    way_down=way_down,
                    folder=save,
                    observer=display,
                )
        except api.ProfileInterrupted as stopped:
            display.close()
            stopped.result.table(by=by, sort=sort, top=top)
            _say_written(stopped.result, save, report)
            raise typer.Exit(130) from None
        except api.ErrorWithResult as failed:
            display.close()
            failed.result.table(by=by, sort=sort, top=top)
            raise rescued(failed.result.save, failed) from failed
    result.table(by=by, sort=sort, top=top)
    _say_written(result, save, report)
    verdicts = {level.verdict for found in result.profiles for level in found.levels}
    verdicts |= {
        level.verdict for found in result.profiles for way in found.ways for level in way.levels
    }
    raise typer.Exit(1 if {"differs", "failed"} & verdicts else 0)


def _require_alone(model: str | None, *written: Path | None) -> None:
    if model is not None:
        raise GolowError(
            "--diff compares two saved profiles and takes no model",
            "leave out the model, or leave out --diff.",
        )
    if any(place is not None for place in written):
        raise GolowError("--diff writes nothing", "leave out --save and --report.")


def _say_written(result: ProfileResult, save: Path | None, report: Path | None) -> None:
    """Print where the profile was saved, with its figures, and write the page."""
    if save is not None:
        _draw(result, save)
        print(f"profile: {save}")
    if report is not None:
        print(f"report: {result.report(report)}")


def _draw(result: ProfileResult, folder: Path) -> None:
    """Draw the figures if matplotlib is installed; the rest of a saved profile does not need it."""
    if find_spec("matplotlib") is None:
        print("note: no figures: matplotlib is not installed: pip install 'golow[figures]'")
    else:
        result.figures(folder)


def _precision(name: str) -> Precision:
    for known in get_args(Precision):
        if name == known:
            precision: Precision = known
            return precision
    require_no_rule(name)
    known = ", ".join(get_args(Precision))
    raise GolowError(f"there is no precision {name!r}", f"use one of {known}.")

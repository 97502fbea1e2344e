"""``golow profile``: where a step's time goes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from golow.commands.options import (
    Batch,
    Channels,
    Classes,
    DeviceName,
    DeviceOption,
    Init,
    Input,
    LevelNames,
    LossOption,
    Model,
    ModeName,
    ModeOption,
    Resolution,
    Seed,
    Threads,
    Weights,
    Workers,
    names,
    no_stream,
    shape,
    workers,
)
from golow.record import GolowError, Precision
from golow.report.console import PlainConsole


def profile(
    model: Model,
    mode: ModeOption = ModeName.infer,
    batch: Batch = None,
    resolution: Resolution = None,
    input: Input = None,
    levels: LevelNames = None,
    worker: Workers = None,
    channels: Channels = None,
    classes: Classes = None,
    weights: Weights = None,
    init: Init = None,
    loss: LossOption = None,
    seed: Seed = 0,
    threads: Threads = None,
    device: DeviceOption = DeviceName.cpu,
    precision: Annotated[
        str, typer.Option(help="Arithmetic of every level; several with commas: default,bf16.")
    ] = "default",
    steps: Annotated[int, typer.Option(help="Profiled steps of each level.")] = 5,
    time_limit: Annotated[
        float, typer.Option(help="Time limit of the race without a profiler, in seconds.")
    ] = 10.0,
    by: Annotated[
        str, typer.Option(help="What to divide a step by: operator, layer or kernel.")
    ] = "operator",
    by_shape: Annotated[
        bool, typer.Option("--by-shape", help="Tell operators apart by their inputs' shapes.")
    ] = False,
    sort: Annotated[
        str,
        typer.Option(
            help="Order of the operators: time, host-time, device-time, host-memory, "
            "device-memory or calls."
        ),
    ] = "time",
    top: Annotated[int, typer.Option(help="Operators, kernels or frames to show.")] = 10,
    way_down: Annotated[
        str | None,
        typer.Option(
            metavar="LAYER",
            help="Instead of a profile: the frames and instructions between the call of this layer "
            "and the vendor's routine, such as layer1.0.conv1. CPU; needs Valgrind.",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the profile and the levels' traces, which Perfetto opens.",
            callback=no_stream,
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
    wanted = [_precision(name) for name in names(precision) or []]
    with ProgressDisplay(PlainConsole(stderr=True)) as display:
        result = api.profile(
            model,
            mode=mode.value,
            batch=batch,
            resolution=resolution,
            input_shape=shape(input),
            levels=names(levels),
            workers=workers(worker or []),
            channels=channels,
            classes=classes,
            weights=weights,
            initialisation=init,
            loss=loss,
            seed=seed,
            threads=threads,
            device=device.value,
            precisions=wanted,
            steps=steps,
            time_limit=time_limit,
            by_shape=by_shape,
            way_down=way_down,
            folder=save,
            observer=display,
        )
    result.table(by=by, sort=sort, top=top)
    if save is not None:
        print(f"profile: {save}")
    verdicts = {level.verdict for found in result.profiles for level in found.levels}
    verdicts |= {
        level.verdict for found in result.profiles for way in found.ways for level in way.levels
    }
    raise typer.Exit(1 if {"differs", "failed"} & verdicts else 0)


def _precision(name: str) -> Precision:
    for known in get_args(Precision):
        if name == known:
            precision: Precision = known
            return precision
    raise GolowError(f"there is no precision {name!r}", f"one of {', '.join(get_args(Precision))}.")

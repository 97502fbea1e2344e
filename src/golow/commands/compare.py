"""``golow compare``: run a model at every level."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    PrecisionName,
    PrecisionOption,
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
from golow.record import GolowError, Optimizer
from golow.report.console import WIDTH, PlainConsole

if TYPE_CHECKING:
    from golow.api import Result


def compare(
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
    learning_rate: Annotated[float, typer.Option(help="Learning rate of SGD.")] = 0.001,
    momentum: Annotated[float, typer.Option(help="Momentum of SGD.")] = 0.9,
    weight_decay: Annotated[float, typer.Option(help="Weight decay of SGD.")] = 0.0,
    seed: Seed = 0,
    threads: Threads = None,
    device: DeviceOption = DeviceName.cpu,
    precision: PrecisionOption = PrecisionName.default,
    cold: Annotated[
        bool, typer.Option("--cold", help="Empty the GPU's L2 cache before each timed iteration.")
    ] = False,
    interval: Annotated[
        float, typer.Option(help="Target width of every ratio's interval, as a share of the ratio.")
    ] = 0.02,
    time_limit: Annotated[
        float,
        typer.Option(
            help="Time limit of the race in seconds; a slow model may take up to 5 times that to "
            "finish 5 rounds."
        ),
    ] = 60.0,
    allow_differs: Annotated[
        bool, typer.Option(help="Also time levels that fail the check; the table marks them.")
    ] = False,
    by_layer: Annotated[
        bool, typer.Option("--by-layer", help="Also show each level's time by layer.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the records.", callback=no_stream)] = Path(
        "runs"
    ),
    json: Annotated[
        str | None,
        typer.Option(help="Also write the results to this JSON file; - is standard output."),
    ] = None,
) -> None:
    """Run a model at every level: check that the levels agree and measure what each one costs.

    The exit status is 0 when every level that can run here matches, and 1 when one differs or
    fails.
    """
    from golow import api
    from golow.comparison import store
    from golow.files import require_place
    from golow.report.progress import ProgressDisplay

    store.require_writable(out)
    if json not in (None, "-"):
        require_place(Path(json))
    with ProgressDisplay(PlainConsole(stderr=True)) as display:
        try:
            result = api.compare(
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
                optimizer=Optimizer(
                    learning_rate=learning_rate, momentum=momentum, weight_decay=weight_decay
                ),
                seed=seed,
                threads=threads,
                device=device.value,
                precision=precision.value,
                cold=cold,
                interval=interval,
                time_limit=time_limit,
                allow_differs=allow_differs,
                by_layer=by_layer,
                observer=display,
            )
        except api.Interrupted as stopped:
            display.close()
            _show_and_save(stopped.result, out, json)
            raise typer.Exit(130) from None
    _show_and_save(result, out, json)
    bad = any(run.check.verdict in ("differs", "failed") for run in result.comparison.runs)
    raise typer.Exit(1 if bad else 0)


def _show_and_save(result: Result, out: Path, json: str | None) -> None:
    """Show the results, then save them: a full disk must not hide the results."""
    from golow.files import write_whole
    from golow.record import encode
    from golow.report.comparison.table import render

    to_pipe = json == "-"
    render(
        result.comparison, PlainConsole(stderr=True, width=WIDTH, markup=False) if to_pipe else None
    )
    if to_pipe:
        sys.stdout.buffer.write(encode(result.comparison))
        sys.stdout.flush()
    elif json is not None:
        try:
            write_whole(Path(json), encode(result.comparison))
        except OSError as error:
            raise GolowError(f"{json} cannot be written: {error.strerror}") from error
    folder = result.save(out)
    print(f"record: {folder}", file=sys.stderr if to_pipe else sys.stdout)

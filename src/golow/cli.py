"""The command line: one short function a command, over the public API.

What is slow to import (torch, scipy) is imported by the commands that need it, so that
``golow levels`` answers at once.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from golow.commands.data import data_app
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
    workers,
)
from golow.commands.study import study_app
from golow.commands.train import train
from golow.record import GolowError, Optimizer, Unsupported
from golow.report.console import WIDTH, wide_console

if TYPE_CHECKING:
    from golow.comparison.compare import Result
    from golow.workload.prepare import Prepared

app = typer.Typer(
    name="golow",
    help="Run a PyTorch model at every level of abstraction, prove that the levels agree, and "
    "measure what each one costs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data_app, name="data")
app.add_typer(study_app, name="study")


@app.command()
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
    learning_rate: Annotated[float, typer.Option(help="Of SGD.")] = 0.001,
    momentum: Annotated[float, typer.Option(help="Of SGD.")] = 0.9,
    weight_decay: Annotated[float, typer.Option(help="Of SGD.")] = 0.0,
    seed: Seed = 0,
    threads: Threads = None,
    device: DeviceOption = DeviceName.cpu,
    precision: PrecisionOption = PrecisionName.default,
    cold: Annotated[
        bool, typer.Option("--cold", help="Empty the GPU's L2 cache before each timed iteration.")
    ] = False,
    interval: Annotated[
        float, typer.Option(help="Relative width to which each ratio's interval is narrowed.")
    ] = 0.02,
    time_limit: Annotated[
        float,
        typer.Option(help="Seconds of racing; up to 5 times that for 5 rounds of a slow model."),
    ] = 60.0,
    allow_differs: Annotated[
        bool, typer.Option(help="Time levels too whose numbers differ; they are marked.")
    ] = False,
    by_layer: Annotated[
        bool, typer.Option("--by-layer", help="Also say where each level's time goes.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the records.")] = Path("runs"),
    json: Annotated[
        str | None, typer.Option(help="Also write all as one JSON file; - is standard output.")
    ] = None,
) -> None:
    """Take a model down the levels: prove that they agree, measure what each costs.

    Ends with status 0 when every level that can run here matches, 1 when one differs or failed.
    """
    from golow.comparison import store
    from golow.comparison.compare import Interrupted
    from golow.comparison.compare import compare as run
    from golow.report.progress import Progress

    store.require_writable(out)
    with Progress(Console(stderr=True)) as progress:
        try:
            result = run(
                model,
                mode=mode.value,
                batch=batch,
                resolution=resolution,
                input_shape=_shape(input),
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
                observer=progress,
            )
        except Interrupted as stopped:
            progress.close()
            _show_and_save(stopped.result, out, json)
            raise typer.Exit(130) from None
    _show_and_save(result, out, json)
    bad = any(run.check.verdict in ("differs", "failed") for run in result.comparison.runs)
    raise typer.Exit(1 if bad else 0)


app.command()(train)


@app.command()
def show(
    records: Annotated[
        list[Path], typer.Argument(help="Folders that `golow compare` or `golow train` wrote.")
    ],
    anyway: Annotated[bool, typer.Option(help="Show unlike runs side by side.")] = False,
    by_layer: Annotated[
        bool, typer.Option("--by-layer", help="Also show where each level's time went.")
    ] = False,
) -> None:
    """Show recorded comparisons and trainings; several comparisons only if machine, versions and
    workload are alike."""
    from golow.comparison import store
    from golow.report.comparison.table import render
    from golow.report.training import table as training
    from golow.training import store as training_store

    trainings = [path for path in records if training_store.is_training(path)]
    for path in trainings:
        training.render(training_store.load(path))
    comparisons = [store.load(path) for path in records if path not in trainings]
    if comparisons and not anyway:
        store.require_alike(comparisons)
    for comparison in comparisons:
        render(comparison, by_layer=by_layer)


@app.command()
def lower(
    model: Model,
    mode: ModeOption = ModeName.infer,
    batch: Batch = None,
    resolution: Resolution = None,
    input: Input = None,
    channels: Channels = None,
    classes: Classes = None,
    loss: LossOption = None,
    device: DeviceOption = DeviceName.cpu,
    precision: PrecisionOption = PrecisionName.default,
    level: Annotated[
        str, typer.Option(help="Go on with the passes of this level, down to its plan.")
    ] = "",
    show: Annotated[bool, typer.Option("--show", help="Print the graph after each pass.")] = False,
) -> None:
    """Capture a model as a graph and take it through the passes of a level."""
    from golow.explain.lowering import lower as run
    from golow.report.comparison.table import graph_table

    prepared = _prepare(
        model,
        mode,
        batch,
        resolution,
        input,
        channels,
        classes,
        loss,
        device=device,
        precision=precision,
    )
    lowered = run(prepared, level)
    if show:
        for graph in lowered.stages:
            done = graph.history[-1]
            print(f"# after {done.name}: {done.nodes} nodes, {done.seconds * 1e3:.1f} ms")
            print(graph)
        if lowered.plan is not None:
            print(f"# the plan of {level}")
            print(lowered.plan)
    else:
        wide_console().print(graph_table(lowered.stages[-1]))
        print("--show prints the graph itself, as Python, after each pass.")


@app.command()
def emit(
    model: Model,
    out: Annotated[Path, typer.Option(help="A new folder for the project.")],
    mode: ModeOption = ModeName.infer,
    batch: Batch = None,
    resolution: Resolution = None,
    input: Input = None,
    channels: Channels = None,
    classes: Classes = None,
    weights: Weights = None,
    init: Init = None,
    loss: LossOption = None,
) -> None:
    """Write the model as a C++ program: a CMake project that builds and runs without golow."""
    from golow.levels.libtorch.emission import emit as write

    prepared = _prepare(
        model, mode, batch, resolution, input, channels, classes, loss, weights, init
    )
    files = write(prepared, out)
    for file in files:
        print(file)
    print(f"{out / 'README.md'} says how to build and run it.")


@app.command()
def levels() -> None:
    """List the levels, from the most abstract to the lowest, with their variants."""
    from golow.levels.ladder import LADDER
    from golow.report.comparison.lists import levels_table

    wide_console().print(levels_table(LADDER))


@app.command()
def models() -> None:
    """List the models of the zoo."""
    from golow.models import ZOO
    from golow.report.comparison.lists import models_table

    wide_console().print(models_table(ZOO))


@app.command()
def doctor() -> None:
    """Say which levels can run here, what is missing, and how trustworthy the machine is."""
    from golow.levels.ladder import LADDER
    from golow.measure.environment import environment
    from golow.report.comparison.lists import doctor_report

    doctor_report(wide_console(), LADDER, environment())


@app.command()
def selftest() -> None:
    """Time workers of known cost here, under two minutes: can numbers be trusted?"""
    from golow.comparison.selftest import selftest as run
    from golow.report.comparison.lists import trust_report
    from golow.report.progress import Progress

    with Progress(Console(stderr=True)) as progress:
        trust = run(progress)
    trust_report(wide_console(), trust)
    raise typer.Exit(0 if trust.trusted else 1)


@app.callback(invoke_without_command=True)
def _version(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if show_version:
        print(f"golow {version('golow')}")
        raise typer.Exit


def main() -> None:
    """Run the command line; what a user can mend is one message and exit status 2."""
    try:
        app()
    except GolowError as error:
        _complain(error.message, error.hint)
    except Unsupported as error:
        _complain(str(error), "")


def _complain(message: str, hint: str) -> None:
    print(f"golow: {message}", file=sys.stderr)
    if hint:
        print(f"  {hint}", file=sys.stderr)
    sys.exit(2)


def _show_and_save(result: Result, out: Path, json: str | None) -> None:
    """Show first: a full disk must not cost the figures that are on the screen."""
    from golow.files import write_whole
    from golow.record import encode
    from golow.report.comparison.table import render

    to_pipe = json == "-"
    render(result.comparison, Console(stderr=True, width=WIDTH, markup=False) if to_pipe else None)
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


def _prepare(
    model: str,
    mode: ModeName,
    batch: int | None,
    resolution: int | None,
    input: str | None,
    channels: int | None,
    classes: int | None,
    loss: str | None,
    weights: Path | None = None,
    init: str | None = None,
    device: DeviceName = DeviceName.cpu,
    precision: PrecisionName = PrecisionName.default,
) -> Prepared:
    from golow.workload.prepare import prepare

    return prepare(
        model,
        mode=mode.value,
        batch=batch,
        resolution=resolution,
        input_shape=_shape(input),
        channels=channels,
        classes=classes,
        loss=loss,
        weights=weights,
        initialisation=init,
        device=device.value,
        precision=precision.value,
    )


def _shape(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(size) for size in text.lower().split("x"))
    except ValueError:
        raise GolowError(
            f"{text!r} is no shape", "write one sample's shape as 3x224x224, without the batch."
        ) from None

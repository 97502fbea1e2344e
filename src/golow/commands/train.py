"""``golow train``: train a model at every level on the same batches, or resume a training run."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from golow.commands import completion
from golow.commands.data import DataRoot
from golow.commands.options import (
    DeviceName,
    DeviceOption,
    LevelNames,
    PrecisionName,
    PrecisionOption,
    ReportFile,
    Threads,
    Trust,
    Workers,
    folder_named,
    folder_place,
    names,
    require_package,
    workers,
)
from golow.commands.quiet import prints_to_stderr
from golow.commands.typed_options import refuse_others, refuse_without
from golow.commands.workload_flags import (
    OptimizerFlags,
    RanksFlags,
    WeightsFlags,
    optimizer_of,
    ranks_of,
)
from golow.records.errors import GolowError
from golow.report.console import PlainConsole
from golow.storage.shell_words import shell_word

if TYPE_CHECKING:
    from torch import nn

    from golow.api import TrainingResult
    from golow.programs.training.observer import TrainingObserver


MOST_SEEDS = 1000
WITH_RESUME = ("resume", "trust", "figures", "tensorboard", "report")
"""Parameters that a resumed training run does not take from its record."""


class ScheduleName(StrEnum):
    """How the learning rate changes over the epochs."""

    constant = "constant"
    step = "step"
    cosine = "cosine"


class VocLabelName(StrEnum):
    """Object whose class labels a PASCAL VOC image."""

    first = "first"
    largest = "largest"


def train(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(
            help="A model from `golow models`, or file.py:Name, package.module:name.",
            show_default=False,
        ),
    ] = None,
    dataset: Annotated[
        str,
        typer.Option(
            help="A data set from `golow data list`, or folder:PATH.",
            autocompletion=completion.datasets,
        ),
    ] = "",
    levels: LevelNames = None,
    worker: Workers = None,
    epochs: Annotated[int, typer.Option(help="Number of epochs.")] = 10,
    seeds: Annotated[int, typer.Option(help="Number of seeds to train with: 0, 1, ...")] = 1,
    seed: Annotated[
        int | None,
        typer.Option(help="Train with this seed only, instead of --seeds.", show_default=False),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            help="Batch size.  [default: 128, or the whole data set if it is smaller]",
            show_default=False,
        ),
    ] = None,
    resolution: Annotated[
        int | None,
        typer.Option(
            help="Side of the square input images, in pixels.  [default: the data set's]",
            show_default=False,
        ),
    ] = None,
    sequence: Annotated[
        int | None,
        typer.Option(
            help="Tokens in each sample of a text.  [default: the data set's]", show_default=False
        ),
    ] = None,
    init: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated weight initialisations to train with: default, kaiming, xavier, "
            "zero_gamma, fixup, normal, transformer, own.",
            show_default=False,
        ),
    ] = None,
    *,
    optimizer: OptimizerFlags,
    schedule: Annotated[
        ScheduleName, typer.Option(help="Schedule of the learning rate.")
    ] = ScheduleName.constant,
    warm_up: Annotated[
        float, typer.Option(help="Epochs over which the learning rate rises to its full value.")
    ] = 0.0,
    step_epochs: Annotated[
        int, typer.Option(help="With --schedule step: epochs between changes of the learning rate.")
    ] = 30,
    factor: Annotated[
        float,
        typer.Option(
            help="With --schedule step: multiply the learning rate by this at each change."
        ),
    ] = 0.1,
    flip: Annotated[
        bool, typer.Option("--flip", help="Mirror half of the images, chosen at random.")
    ] = False,
    crop: Annotated[
        int, typer.Option(help="Shift each image at random by up to this many pixels.")
    ] = 0,
    device: DeviceOption = DeviceName.cpu,
    precision: PrecisionOption = PrecisionName.default,
    threads: Threads = None,
    ranks: RanksFlags,
    published: WeightsFlags,
    data_root: DataRoot = None,
    voc_label: Annotated[
        VocLabelName, typer.Option(help="Object whose class labels a PASCAL VOC image.")
    ] = VocLabelName.first,
    allow_differs: Annotated[
        bool, typer.Option(help="Also train levels that fail the check; the table marks them.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the runs.", callback=folder_named)] = Path(
        "runs"
    ),
    figures: Annotated[
        Path | None,
        typer.Option(
            help="Also write figures to this folder.", show_default=False, callback=folder_place
        ),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            help="Also write TensorBoard logs to this folder.",
            show_default=False,
            callback=folder_place,
        ),
    ] = None,
    report: ReportFile = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Resume the training run in this folder, with its original settings.",
            show_default=False,
        ),
    ] = None,
    trust: Trust = False,
) -> None:
    """Train a model at every level on the same batches, and check that the networks are the same.

    The exit status is 0 when every level that can train here did and none trained a different
    network, and 1 when one differs or fails.
    """
    from golow import api
    from golow.programs.training.training_record import Augmentation, Schedule
    from golow.report.training.progress import TrainingProgressDisplay

    if resume is None:
        refuse_without(context, "--resume FOLDER", ("trust",))
    else:
        _require_alone(model, dataset)
        does = "uses the settings of the training run"
        refuse_others(context, "--resume", does, WITH_RESUME)
    if schedule is not ScheduleName.step:
        refuse_without(context, "--schedule step", ("step_epochs", "factor"))
    if figures is not None:
        require_package("matplotlib", "figures")
    if tensorboard is not None:
        require_package("tensorboard", "tensorboard")

    def run(observer: TrainingObserver) -> TrainingResult:
        if resume is not None:
            return api.resume(resume, trust=trust, observer=observer)
        return api.train(
            _required(model, "a model", "golow train lenet5 --dataset digits"),
            dataset=_required(
                dataset, "a data set", "--dataset digits; `golow data list` lists all."
            ),
            levels=names(levels),
            workers=workers(worker or []),
            epochs=epochs,
            seeds=_seeds(seeds) if seed is None else [seed],
            batch=batch,
            resolution=resolution,
            sequence=sequence,
            initialisations=names(init),
            optimizer=optimizer_of(optimizer),
            schedule=Schedule(
                kind=schedule.value,
                warm_up_epochs=warm_up,
                step_epochs=step_epochs,
                factor=factor,
            ),
            augmentation=Augmentation(flip=flip, padding=crop),
            device=device.value,
            precision=precision.value,
            threads=threads,
            ranks=ranks_of(ranks, device),
            data_root=data_root,
            voc_label=voc_label.value,
            out=out,
            allow_differs=allow_differs,
            pretrained=published.pretrained,
            download=published.download,
            observer=observer,
        )

    with TrainingProgressDisplay(PlainConsole(stderr=True)) as display:
        try:
            with prints_to_stderr():
                result = run(display)
        except api.TrainingInterrupted as stopped:
            display.close()
            stopped.result.table()
            again = f"golow train --resume {shell_word(stopped.result.folder)}"
            print(f"to continue: {again}", file=sys.stderr)
            raise typer.Exit(130) from None
    result.table()
    if figures is not None:
        result.figures(figures)
    if tensorboard is not None:
        # A model named on the command line may be built; one named only in the record may not.
        with prints_to_stderr():
            notes = result.tensorboard(tensorboard, None if resume else _built(result))
        for note in notes:
            print(f"note: {note}")
    print(f"record: {result.folder}")
    if report is not None:
        print(f"report: {result.report(report)}")
    raise typer.Exit(0 if result.good else 1)


def _built(result: TrainingResult) -> nn.Module | None:
    """Build the network that was trained."""
    from golow.workload.source import build_module

    source = next((run.workload.source for run in result.training.runs), None)
    return None if source is None else build_module(source)


def _required(given: str | None, what: str, example: str) -> str:
    if not given:
        raise GolowError(f"golow train needs {what}", f"for example: {example}")
    return given


def _seeds(count: int) -> range:
    if count > MOST_SEEDS:
        raise GolowError(f"{count} seeds are too many", f"use --seeds 1 to {MOST_SEEDS}.")
    return range(count)


def _require_alone(model: str | None, dataset: str) -> None:
    if model or dataset:
        raise GolowError(
            "--resume uses the model and the data set of the training run",
            "leave out the model and --dataset, or leave out --resume.",
        )

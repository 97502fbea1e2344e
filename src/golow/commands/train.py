"""``golow train``: train a model at every level on the same batches, or go on with a training."""

from __future__ import annotations

import sys
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from golow.commands.data import DataRoot
from golow.commands.options import (
    DeviceName,
    DeviceOption,
    LevelNames,
    PrecisionName,
    PrecisionOption,
    Threads,
    Workers,
    names,
    workers,
)
from golow.record import GolowError, Optimizer

if TYPE_CHECKING:
    from golow.api import TrainingResult
    from golow.training.observer import TrainingObserver


class ScheduleName(StrEnum):
    """How the learning rate goes over the epochs."""

    constant = "constant"
    step = "step"
    cosine = "cosine"


class VocLabelName(StrEnum):
    """Which object gives a picture of PASCAL VOC its label."""

    first = "first"
    largest = "largest"


def train(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A name that `golow models` lists, file.py:Name or package.module:name.",
            show_default=False,
        ),
    ] = None,
    dataset: Annotated[
        str, typer.Option(help="A name that `golow data list` lists, or folder:PATH.")
    ] = "",
    levels: LevelNames = None,
    worker: Workers = None,
    epochs: Annotated[int, typer.Option(help="Times that every sample is seen.")] = 10,
    seeds: Annotated[int, typer.Option(help="How many seeds, 0 the first.")] = 1,
    seed: Annotated[
        int | None,
        typer.Option(help="This seed alone, of weights and order.", show_default=False),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(help="Samples in a batch.  [default: 128, or all]", show_default=False),
    ] = None,
    resolution: Annotated[
        int | None,
        typer.Option(help="Side of the pictures.  [default: the data set's]", show_default=False),
    ] = None,
    init: Annotated[
        str | None,
        typer.Option(
            help="default, kaiming, xavier, zero_gamma, fixup, normal, own; several with commas.",
            show_default=False,
        ),
    ] = None,
    learning_rate: Annotated[float, typer.Option(help="Of SGD.")] = 0.001,
    momentum: Annotated[float, typer.Option(help="Of SGD.")] = 0.9,
    weight_decay: Annotated[float, typer.Option(help="Of SGD.")] = 0.0,
    schedule: Annotated[
        ScheduleName, typer.Option(help="Of the learning rate.")
    ] = ScheduleName.constant,
    warm_up: Annotated[
        float, typer.Option(help="Epochs in which the learning rate rises to its size.")
    ] = 0.0,
    step_epochs: Annotated[
        int, typer.Option(help="With --schedule step: epochs of one learning rate.")
    ] = 30,
    factor: Annotated[
        float, typer.Option(help="With --schedule step: of each learning rate to the one before.")
    ] = 0.1,
    flip: Annotated[
        bool, typer.Option("--flip", help="Mirror half of the pictures, at random.")
    ] = False,
    crop: Annotated[
        int, typer.Option(help="Move each picture by up to so many pixels, at random.")
    ] = 0,
    device: DeviceOption = DeviceName.cpu,
    precision: PrecisionOption = PrecisionName.default,
    threads: Threads = None,
    data_root: DataRoot = None,
    voc_label: Annotated[
        VocLabelName, typer.Option(help="Which object labels a picture of PASCAL VOC.")
    ] = VocLabelName.first,
    allow_differs: Annotated[
        bool, typer.Option(help="Train levels too whose numbers differ; they are marked.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the trainings.")] = Path("runs"),
    figures: Annotated[
        Path | None,
        typer.Option(help="Also draw figures into this folder.", show_default=False),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(help="Also write TensorBoard's logs there.", show_default=False),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Go on with the training in this folder, as it was asked for then.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Train a model at every level on the same batches; say whether they trained the same network.

    Ends with status 0 when every level that can train here did, and none trained another network;
    1 when one differs or failed.
    """
    from golow import api
    from golow.report.training.progress import TrainingProgressDisplay
    from golow.training.record import Augmentation, Schedule

    if figures is not None:
        _require_package("matplotlib", "figures")
    if tensorboard is not None:
        _require_package("tensorboard", "tensorboard")

    def run(observer: TrainingObserver) -> TrainingResult:
        if resume is not None:
            _require_alone(model, dataset)
            return api.resume(resume, observer=observer)
        return api.train(
            _required(model, "a model", "golow train lenet5 --dataset digits"),
            dataset=_required(dataset, "a data set", "--dataset digits; `golow data list`"),
            levels=names(levels),
            workers=workers(worker or []),
            epochs=epochs,
            seeds=range(seeds) if seed is None else [seed],
            batch=batch,
            resolution=resolution,
            initialisations=names(init),
            optimizer=Optimizer(
                learning_rate=learning_rate, momentum=momentum, weight_decay=weight_decay
            ),
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
            data_root=data_root,
            voc_label=voc_label.value,
            out=out,
            allow_differs=allow_differs,
            observer=observer,
        )

    with TrainingProgressDisplay(Console(stderr=True)) as display:
        try:
            result = run(display)
        except api.TrainingInterrupted as stopped:
            display.close()
            stopped.result.table()
            print(f"golow train --resume {stopped.result.folder} goes on", file=sys.stderr)
            raise typer.Exit(130) from None
    result.table()
    if figures is not None:
        result.figures(figures)
    for note in result.tensorboard(tensorboard) if tensorboard is not None else ():
        print(f"note: {note}")
    print(f"record: {result.folder}")
    raise typer.Exit(0 if result.good else 1)


def _require_package(name: str, extra: str) -> None:
    """Now rather than after hours of training."""
    if find_spec(name) is None:
        raise GolowError(f"{name} is not installed", f"pip install 'golow[{extra}]'")


def _required(given: str | None, what: str, example: str) -> str:
    if not given:
        raise GolowError(f"golow train needs {what}", f"for example: {example}")
    return given


def _require_alone(model: str | None, dataset: str) -> None:
    if model or dataset:
        raise GolowError(
            "--resume goes on with the model and the data set that the training has",
            "leave them out, or leave --resume out.",
        )

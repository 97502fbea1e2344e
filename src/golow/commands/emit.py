"""``golow emit``: write a model as a C++ project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from golow.commands.options import (
    Batch,
    Channels,
    Classes,
    Init,
    Input,
    LossOption,
    Model,
    ModeName,
    ModeOption,
    Resolution,
    Sequence,
    Weights,
    no_stream,
    shape,
)


def emit(
    model: Model,
    out: Annotated[
        Path, typer.Option(help="Folder to create for the project.", callback=no_stream)
    ],
    mode: ModeOption = ModeName.infer,
    batch: Batch = None,
    resolution: Resolution = None,
    sequence: Sequence = None,
    input: Input = None,
    channels: Channels = None,
    classes: Classes = None,
    weights: Weights = None,
    init: Init = None,
    loss: LossOption = None,
) -> None:
    """Write a model as a C++ program: a CMake project that builds and runs without golow."""
    from golow.levels.libtorch.emission import emit as write
    from golow.workload.prepare import prepare
    from golow.workload.request import Request

    request = Request(
        model,
        mode=mode.value,
        batch=batch,
        resolution=resolution,
        sequence=sequence,
        input_shape=shape(input),
        channels=channels,
        classes=classes,
        weights=weights,
        initialisation=init,
        loss=loss,
    )
    files = write(prepare(request), out)
    for file in files:
        print(file)
    print(f"To build and run it, see {out / 'README.md'}.")

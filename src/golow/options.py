"""The options of the command line that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class ModeName(StrEnum):
    """What is measured: a forward pass, or a whole training step."""

    infer = "infer"
    train = "train"


class DeviceName(StrEnum):
    """Where every level runs."""

    cpu = "cpu"
    cuda = "cuda"


class PrecisionName(StrEnum):
    """Arithmetic of every level."""

    default = "default"
    ieee = "ieee"
    tf32 = "tf32"
    bf16 = "bf16"
    fp16 = "fp16"


Model = Annotated[
    str,
    typer.Argument(
        help="A name that `golow models` lists, file.py:Name, package.module:name or file.pt2.",
        show_default=False,
    ),
]
ModeOption = Annotated[ModeName, typer.Option("--mode", help="Forward pass, or training step.")]
Batch = Annotated[int | None, typer.Option(help="Samples in a batch.  [default: 8]")]
Resolution = Annotated[int | None, typer.Option(help="Side of the square input images.")]
Input = Annotated[str | None, typer.Option(help="Shape of one sample, as 3x224x224.")]
Channels = Annotated[int | None, typer.Option(help="Input channels of a model of the zoo.")]
Classes = Annotated[int | None, typer.Option(help="Classes of a model of the zoo.")]
Weights = Annotated[Path | None, typer.Option(help="A .safetensors file of the state dict.")]
Init = Annotated[
    str | None,
    typer.Option(help="default, kaiming, xavier, zero_gamma or normal; without --weights."),
]
LossOption = Annotated[
    str | None, typer.Option(help="A loss of torch.nn.functional.  [default: cross_entropy]")
]
Seed = Annotated[int, typer.Option(help="Of weights, order of images and rounds.")]
DeviceOption = Annotated[DeviceName, typer.Option("--device", help="Where every level runs.")]
PrecisionOption = Annotated[
    PrecisionName,
    typer.Option(
        "--precision",
        help="default is what PyTorch does unless told: on a GPU TF32 in convolutions. ieee is "
        "float32 everywhere; tf32, bf16 and fp16 need a GPU.",
    ),
]
Threads = Annotated[int | None, typer.Option(help="Of every level.  [default: all cores]")]

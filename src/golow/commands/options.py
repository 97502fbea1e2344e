"""The options of the command line that several commands share, and what their texts mean."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from golow.record import GolowError


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
LevelNames = Annotated[
    str | None, typer.Option(help="Names that `golow levels` lists, with commas between.")
]
Workers = Annotated[
    list[str] | None,
    typer.Option(help="A program of your own that speaks the protocol: NAME=COMMAND."),
]
Init = Annotated[
    str | None,
    typer.Option(help="default, kaiming, xavier, zero_gamma, fixup or normal; without --weights."),
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
Threads = Annotated[
    int | None, typer.Option(help="Of every level.  [default: one a physical core]")
]


def names(text: str | None) -> list[str] | None:
    """Names with commas between; None where the option was not given."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def workers(given: list[str]) -> dict[str, list[str]]:
    """Commands by name, of NAME=COMMAND; raises `GolowError` for anything else."""
    found = {}
    for text in given:
        name, equals, command = text.partition("=")
        if not (name and equals and command.strip()):
            raise GolowError(f"--worker {text!r} is not NAME=COMMAND", '--worker "mine=./runtime"')
        found[name] = shlex.split(command)
    return found


def shape(text: str | None) -> tuple[int, ...] | None:
    """One sample's shape, of 3x224x224; raises `GolowError` for anything else."""
    if text is None:
        return None
    try:
        return tuple(int(size) for size in text.lower().split("x"))
    except ValueError:
        raise GolowError(
            f"{text!r} is no shape", "write one sample's shape as 3x224x224, without the batch."
        ) from None

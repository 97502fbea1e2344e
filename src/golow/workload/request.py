"""The request: a model, its inputs, and how to run it. Importing this imports no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from golow.record import Device, GolowError, Mode, Optimizer, Precision

if TYPE_CHECKING:
    from torch import Tensor, nn

Loss = Callable[..., "Tensor"]

CALLERS_INPUTS = "the caller's example inputs"  # what `Workload.data` says of them


@dataclass(frozen=True)
class Request:
    """A workload as its user describes it; `golow.workload.prepare` checks and builds it.

    model: a name of the zoo, ``file.py:Name``, ``package.module:name``, ``file.pt2`` or a module.
    example_inputs and targets: tensors with the batch dimension first, for models that do not take
    images; without them golow uses its own images and labels. batch: 8 by default. input_shape: of
    one sample, without the batch. resolution: side of a square image. sequence: tokens of a sample.
    channels, classes: for a model of the zoo; the classes of a language model are its vocabulary.
    weights: a .safetensors file of the state dict. initialisation: a name of
    `golow.models.initialise`. loss: a name of torch.nn.functional or of `golow.workload.losses`,
    or a function of the output and the targets. seed: for weights and order of images. threads:
    for every level.
    """

    model: str | nn.Module
    example_inputs: Tensor | Sequence[Tensor] | None = None
    _: KW_ONLY
    mode: Mode = "infer"
    batch: int | None = None
    resolution: int | None = None
    sequence: int | None = None
    input_shape: tuple[int, ...] | None = None
    channels: int | None = None
    classes: int | None = None
    weights: str | Path | None = None
    initialisation: str | None = None
    loss: str | Loss | None = None
    targets: Tensor | Sequence[Tensor] | None = None
    optimizer: Optimizer = field(default_factory=Optimizer)
    seed: int = 0
    threads: int = 1
    device: Device = "cpu"
    precision: Precision = "default"


def require_optimizer(optimizer: Optimizer) -> None:
    """Raise `GolowError` unless its numbers are finite; any size and sign is the user's choice."""
    for name in optimizer.__struct_fields__:
        if not math.isfinite(getattr(optimizer, name)):
            option = name.replace("_", "-")
            raise GolowError(f"--{option} {getattr(optimizer, name)} is not a finite number")

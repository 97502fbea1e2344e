"""The request: a model, its inputs, and how to run it. Importing this imports no torch."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Union, get_args

from golow.records.errors import GolowError
from golow.records.workload import Device, Mode, Optimizer, OptimizerName, Phase, Precision

if TYPE_CHECKING:
    from torch import Tensor, nn

Loss = Callable[..., "Tensor"]
Inputs = Union["Tensor", Sequence["Tensor"], Mapping[str, "Tensor"]]

# Values of `Workload.data` for inputs that golow does not make.
CALLERS_INPUTS = "the caller's example inputs"
PROGRAMS_INPUTS = "the inputs that the program was exported with"

WHOLE_NUMBERS = (
    "batch", "resolution", "sequence", "channels", "classes", "seed", "threads", "ranks",
)  # fmt: skip

SHARING_RANKS = 8
"""Ranks that may train on a CPU even if they share its cores."""

SEEDS = 2**64
EXAMPLE = 'golow.Optimizer("adamw", learning_rate=1e-3)'


@dataclass(frozen=True)
class Request:
    """A workload as its user describes it; `golow.workload.prepare` checks and builds it.

    model: a name of the zoo, ``hf:NAME``, ``timm:NAME``, ``file.py:Name``,
    ``package.module:name``, ``file.pt2`` or a module. example_inputs and targets: tensors with the
    batch dimension first, for models that do not take images; a mapping gives inputs by the names
    of the forward pass. Without them golow uses its own images and labels. batch: 8 by default.
    input_shape: of one sample, without the batch. resolution: side of a square image. sequence:
    tokens of a sample.
    channels, classes: for a model of the zoo; the classes of a language model are its vocabulary.
    weights: a .safetensors file of the state dict. initialisation: a name of
    `golow.models.initialise`. loss: a name of torch.nn.functional or of `golow.workload.losses`,
    or a function of the output and the targets. seed: for weights and order of images. threads:
    for every level. pretrained: for ``hf:`` and ``timm:``, the publisher's weights, or random ones;
    None is the publisher's for ``hf:`` and random ones for ``timm:``. download: whether what is not
    on this machine yet may be downloaded. phase: of generation, for causal models of ``hf:``;
    ``decode`` computes one token after ``sequence`` others, whose keys and values are inputs.
    ranks: processes that train together, each with ``batch`` samples and ``threads`` of its own; on
    a GPU one each.
    """

    model: str | nn.Module
    example_inputs: Inputs | None = None
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
    pretrained: bool | None = None
    download: bool = False
    phase: Phase = ""
    ranks: int = 1


class GraphOptions(TypedDict, total=False):
    """Fields of `Request` by name: those that decide the graph of a model."""

    mode: Mode
    batch: int | None
    resolution: int | None
    sequence: int | None
    input_shape: tuple[int, ...] | None
    channels: int | None
    classes: int | None
    loss: str | Loss | None
    targets: Tensor | Sequence[Tensor] | None
    pretrained: bool | None
    download: bool
    phase: Phase


class WorkloadOptions(GraphOptions, total=False):
    """Also those of a workload that is run and that every function takes as `Request` does."""

    weights: str | Path | None
    initialisation: str | None
    seed: int
    device: Device


def sample_shape(text: str) -> tuple[int, ...]:
    """Parse the shape of one sample, such as 3x224x224. Raises `GolowError` for anything else."""
    try:
        return tuple(int(size) for size in text.lower().split("x"))
    except ValueError:
        raise GolowError(
            f"{text!r} is not a shape",
            "write the shape of one sample, without the batch, for example 3x224x224.",
        ) from None


def require_mode(mode: Mode) -> None:
    """Raise `GolowError` for a mode that golow does not have."""
    if mode not in get_args(Mode):
        raise GolowError(f"there is no mode {mode!r}", "modes are infer and train.")


def require_seed(seed: int) -> None:
    """Raise `GolowError` unless torch accepts the seed."""
    if not 0 <= seed < SEEDS:
        message = f"{seed} is not a seed: a whole number from 0 to 2^64 - 1"
        raise GolowError(message, "for example --seed 0.")


def require_whole_numbers(request: Request) -> None:
    """Raise `GolowError` for a size, a count or a seed that is not a whole number."""
    for name in WHOLE_NUMBERS:
        value = getattr(request, name)
        if value is not None and not isinstance(value, Integral):
            raise GolowError(
                f"the {name} {value!r} is not a whole number", f"for example {name}=8."
            )


def option_of_ranks(device: Device) -> str:
    """The option that sets the number of ranks on a device."""
    return "--gpus" if device == "cuda" else "--ranks"


def require_some_ranks(ranks: int, device: Device) -> None:
    """Raise `GolowError` for a number of ranks that no training has, or that this machine cannot
    start."""
    if not isinstance(ranks, Integral):
        raise GolowError(f"the ranks {ranks!r} is not a whole number", "for example ranks=2.")
    if ranks < 1:
        raise GolowError(
            f"{ranks} ranks train nothing",
            f"use {option_of_ranks(device)} 1 or more.",
            python_hint="use ranks=1 or more.",
        )
    cores = len(os.sched_getaffinity(0))
    most = max(SHARING_RANKS, cores)
    if device == "cpu" and ranks > most:
        raise GolowError(
            f"{ranks} ranks, each a process, are too many for {cores} hardware threads",
            f"use --ranks {most} or fewer.",
            python_hint=f"use ranks={most} or fewer.",
        )


def require_ranks(request: Request) -> None:
    """Raise `GolowError` for a number of ranks that no workload of this kind has."""
    require_whole_numbers(request)
    require_some_ranks(request.ranks, request.device)
    option = option_of_ranks(request.device)
    if request.ranks > 1 and request.mode != "train":
        raise GolowError(
            f"{request.ranks} ranks are for training: they exchange gradients",
            f"add --mode train, or leave out {option}.",
            python_hint='use mode="train", or ranks=1.',
        )


def require_optimizer(optimizer: Optimizer) -> None:
    """Raise `GolowError` for numbers that are not finite, or that PyTorch's optimizer refuses, and
    for settings that the optimizer does not have."""
    kind = f"of type {type(optimizer).__name__}"
    if not isinstance(optimizer, Optimizer):
        raise GolowError(
            f"the optimizer is {repr(optimizer) if isinstance(optimizer, str) else kind}",
            f"give {EXAMPLE}; golow constructs torch's optimizer from it.",
        )
    known = get_args(OptimizerName)
    if optimizer.name not in known:
        raise GolowError(f"there is no optimizer {optimizer.name!r}", f"use {', '.join(known)}.")
    for name in ("learning_rate", "momentum", "weight_decay", "smoothing", "epsilon"):
        value = getattr(optimizer, name)
        if not isinstance(value, Real) or not math.isfinite(value):
            raise GolowError(f"--{name.replace('_', '-')} {value} is not a finite number")
    if len(optimizer.betas) != 2:
        raise GolowError(f"betas {optimizer.betas} are not two numbers", "for example 0.9, 0.999.")
    for problem, hint in _problems(optimizer):
        raise GolowError(problem, hint)


def _problems(optimizer: Optimizer) -> Iterator[tuple[str, str]]:
    inert = optimizer.name in ("adam", "adamw")
    if optimizer.momentum and inert:
        yield f"{optimizer.name} has no momentum", "its first beta does this: set --betas."
    if optimizer.nesterov and (optimizer.name != "sgd" or not optimizer.momentum):
        yield "--nesterov is a form of SGD's momentum", "use --optimizer sgd and a --momentum."
    if not all(0 <= share < 1 for share in (*optimizer.betas, optimizer.smoothing)):
        yield "a beta, or the smoothing, is not between 0 and 1", "1 itself is too much."
    for name in ("learning_rate", "momentum", "weight_decay", "epsilon"):
        if getattr(optimizer, name) < 0:
            yield f"--{name.replace('_', '-')} {getattr(optimizer, name):g} is negative", ""
    clip = optimizer.clip
    if clip is not None and not 0 < clip < math.inf:
        yield f"--clip {clip:g} is not a valid norm", "use a number above 0."


def require_precision(device: Device, precision: Precision) -> None:
    """Raise `GolowError` unless a device of this kind has the precision, whatever is here."""
    if device not in get_args(Device):
        raise GolowError(f"there is no device {device!r}", "devices are cpu and cuda.")
    if precision not in get_args(Precision):
        known = ", ".join(get_args(Precision))
        raise GolowError(f"there is no precision {precision!r}", f"precisions are {known}.")
    if device == "cpu" and precision not in ("default", "ieee"):
        raise GolowError(
            f"the precision {precision} is for a GPU; on a CPU every level runs in float32",
            "add --device cuda, or use --precision default.",
        )

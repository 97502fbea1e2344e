"""The options that describe a workload on the command line: groups of them, for `splice`, and the
keywords of the API that they become."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from golow.commands.options import (
    Channels,
    Classes,
    DeviceName,
    DeviceOption,
    LossOption,
    Threads,
    span,
)
from golow.records.errors import GolowError
from golow.records.workload import Optimizer
from golow.workload.request import sample_shape

if TYPE_CHECKING:
    from golow.workload.request import GraphOptions, WorkloadOptions


class ModeName(StrEnum):
    """Measured computation: a forward pass or a whole training step."""

    infer = "infer"
    train = "train"


class PhaseName(StrEnum):
    """A phase of text generation."""

    prefill = "prefill"
    decode = "decode"


class OptimizerChoice(StrEnum):
    """The optimizer of a training step."""

    sgd = "sgd"
    adam = "adam"
    adamw = "adamw"
    rmsprop = "rmsprop"


ModeOption = Annotated[
    ModeName, typer.Option("--mode", help="Run forward passes or training steps.")
]
Batch = Annotated[int | None, typer.Option(help="Batch size.  [default: 8]")]
Resolution = Annotated[int | None, typer.Option(help="Side of the square input images, in pixels.")]
Sequence = Annotated[
    int | None,
    typer.Option(help="Tokens in each sample, for models that take text.", show_default=False),
]
SampleShape = Annotated[
    str | None, typer.Option(help="Shape of one sample, for example 3x224x224.")
]


Seed = Annotated[
    int, typer.Option(help="Seed for the weights, the image order and the order of the levels.")
]


@dataclass(frozen=True, kw_only=True)
class InputFlags:
    """The computation and its sizes: options of every command that takes a model."""

    mode: ModeOption = ModeName.infer
    batch: Batch = None
    resolution: Resolution = None
    sequence: Sequence = None
    input: SampleShape = None


@dataclass(frozen=True, kw_only=True)
class InferenceFlags:
    """`InputFlags` without a mode, for commands that only run forward passes."""

    batch: Batch = None
    resolution: Resolution = None
    sequence: Sequence = None
    input: SampleShape = None

    def inputs(self) -> InputFlags:
        """Inputs of inference with these sizes."""
        return InputFlags(
            batch=self.batch,
            resolution=self.resolution,
            sequence=self.sequence,
            input=self.input,
        )


@dataclass(frozen=True, kw_only=True)
class SampleFlags:
    """The size of one sample, for commands that make the batches themselves."""

    resolution: Resolution = None
    sequence: Annotated[
        str | None,
        typer.Option(
            help="Tokens in each sample, for models that take text; 16..128 for samples of "
            "different lengths.",
            show_default=False,
        ),
    ] = None
    input: SampleShape = None

    def inputs(self) -> InputFlags:
        """Inputs of inference with the longest sample. Raises `GolowError` as `limits` does."""
        limits = self.limits()
        longest = limits[1] if limits is not None else None
        return InputFlags(resolution=self.resolution, sequence=longest, input=self.input)

    def lengths(self) -> tuple[int, int] | None:
        """Tokens of the shortest sample and the longest; None if all have as many. Raises
        `GolowError` as `limits` does."""
        limits = self.limits()
        return limits if limits is not None and limits[0] != limits[1] else None

    def limits(self) -> tuple[int, int] | None:
        """Tokens of the shortest sample and the longest; None if the option was not given. Raises
        `GolowError` for what is neither a number nor two of them."""
        return None if self.sequence is None else span("--sequence", self.sequence)


@dataclass(frozen=True, kw_only=True)
class SizesFlags:
    """`InputFlags` with several batch sizes."""

    mode: ModeOption = ModeName.infer
    batch: Annotated[
        str | None,
        typer.Option(
            help="Batch size; for onednn and cudnn also several, such as 1,8: each gets a plan, "
            "and a batch between two sizes uses the plan for the larger one.  [default: 8]"
        ),
    ] = None
    resolution: Resolution = None
    sequence: Sequence = None
    input: SampleShape = None

    def sizes(self) -> list[int]:
        """The sizes that were given, in order. Raises `GolowError` for anything but whole
        numbers."""
        try:
            return sorted({int(part) for part in self.batch.split(",")} if self.batch else set())
        except ValueError:
            raise GolowError(
                f"--batch {self.batch} is not a batch size",
                "for example --batch 8, or --batch 1,8.",
            ) from None

    def largest(self) -> InputFlags:
        """The options with the largest size."""
        sizes = self.sizes()
        return InputFlags(
            mode=self.mode,
            batch=sizes[-1] if sizes else None,
            resolution=self.resolution,
            sequence=self.sequence,
            input=self.input,
        )


@dataclass(frozen=True, kw_only=True)
class NetworkFlags:
    """The network and its weights."""

    channels: Channels = None
    classes: Classes = None
    weights: Annotated[
        Path | None, typer.Option(help="A .safetensors file with the state dict.")
    ] = None
    init: Annotated[
        str | None,
        typer.Option(
            help="How to initialise the weights: default, kaiming, xavier, zero_gamma, fixup, "
            "normal or transformer. Not with --weights."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TrainedNetworkFlags(NetworkFlags):
    """`NetworkFlags` and the loss, for commands that also run training steps."""

    loss: LossOption = None


@dataclass(frozen=True, kw_only=True)
class WeightsFlags:
    """How to get a published model's weights."""

    pretrained: Annotated[
        bool | None,
        typer.Option(
            "--pretrained/--random-weights",
            help="Weights of hf: and timm: models.  [default: pretrained for hf:, random for "
            "timm:]",
            show_default=False,
        ),
    ] = None
    download: Annotated[
        bool,
        typer.Option(
            "--download",
            help="Download what an hf: or timm: model needs and this machine lacks; safetensors "
            "only.",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class PublishedFlags(WeightsFlags):
    """How to get a published model, and the phase of generation."""

    phase: Annotated[
        PhaseName | None,
        typer.Option(
            "--phase",
            help="Phase of text generation, for causal hf: models: prefill processes --sequence "
            "tokens, decode computes the one after them. golow generate times whole texts.",
            show_default=False,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ExecutionFlags:
    """Where and how every level runs."""

    seed: Seed = 0
    threads: Threads = None
    device: DeviceOption = DeviceName.cpu


@dataclass(frozen=True, kw_only=True)
class RanksFlags:
    """How many processes train together."""

    ranks: Annotated[
        str | None,
        typer.Option(
            metavar="<int>",
            help="Processes that train together on a CPU, each on its own batch.  [default: 1]",
            show_default=False,
        ),
    ] = None
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="<int>",
            help="With --device cuda: GPUs that train together, each on its own batch.  "
            "[default: 1]",
            show_default=False,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class OptimizerFlags:
    """The optimizer of a training step, with its settings."""

    optimizer: Annotated[
        OptimizerChoice, typer.Option("--optimizer", help="Optimizer, as in torch.optim.")
    ] = OptimizerChoice.sgd
    learning_rate: Annotated[float, typer.Option(help="Learning rate.")] = 0.001
    momentum: Annotated[
        float | None,
        typer.Option(help="Momentum of sgd and rmsprop.  [default: 0.9 for sgd, 0 for rmsprop]"),
    ] = None
    nesterov: Annotated[
        bool, typer.Option("--nesterov", help="Use Nesterov momentum with sgd.")
    ] = False
    weight_decay: Annotated[
        float | None,
        typer.Option(help="Weight decay.  [default: 0.01 for adamw, 0 for the others]"),
    ] = None
    betas: Annotated[
        str, typer.Option(help="Decay rates of the running means of adam and adamw.")
    ] = "0.9,0.999"
    smoothing: Annotated[float, typer.Option(help="Decay rate of rmsprop's running mean.")] = 0.99
    epsilon: Annotated[
        float, typer.Option(help="Term that adam, adamw and rmsprop add to the denominator.")
    ] = 1e-8
    clip: Annotated[
        float | None,
        typer.Option(help="Clip gradients to this total norm.  [default: none]"),
    ] = None


def graph_options(
    inputs: InputFlags,
    channels: int | None,
    classes: int | None,
    loss: str | None,
    published: PublishedFlags,
) -> GraphOptions:
    """The keywords of the API for these options. Raises `GolowError` for an invalid shape, and for
    a loss without training."""
    if loss is not None and inputs.mode is ModeName.infer:
        raise _of_training("loss")
    return {
        "mode": inputs.mode.value,
        "batch": inputs.batch,
        "resolution": inputs.resolution,
        "sequence": inputs.sequence,
        "input_shape": None if inputs.input is None else sample_shape(inputs.input),
        "channels": channels,
        "classes": classes,
        "loss": loss,
        "pretrained": published.pretrained,
        "download": published.download,
        "phase": published.phase.value if published.phase is not None else "",
    }


def workload_options(
    inputs: InputFlags, network: NetworkFlags, published: PublishedFlags, execution: ExecutionFlags
) -> WorkloadOptions:
    """The keywords of the API for these options. Raises `GolowError` for an invalid shape."""
    loss = network.loss if isinstance(network, TrainedNetworkFlags) else None
    return {
        **graph_options(inputs, network.channels, network.classes, loss, published),
        "weights": network.weights,
        "initialisation": network.init,
        "seed": execution.seed,
        "device": execution.device.value,
    }


def ranks_of(flags: RanksFlags, device: DeviceName) -> int:
    """The number of ranks. Raises `GolowError` for the option of the other device, and for several
    numbers, which are an axis of a study."""
    on_gpu = device is DeviceName.cuda
    if on_gpu and flags.ranks is not None:
        raise GolowError("--ranks is for a CPU", f"use --gpus {flags.ranks}.")
    if not on_gpu and flags.gpus is not None:
        raise GolowError(
            f"--gpus {flags.gpus} needs --device cuda",
            f"add it; --ranks {flags.gpus} trains in processes on the CPU.",
        )
    option, given = ("--gpus", flags.gpus) if on_gpu else ("--ranks", flags.ranks)
    if given is None:
        return 1
    try:
        first, *more = map(int, given.split(","))
    except ValueError:
        raise GolowError(
            f"{option} {given} is not a number of ranks", f"for example {option} 2."
        ) from None
    if more:
        raise GolowError(
            f"{option} {given}: a run takes one number of ranks",
            f"a study takes several: {option.lstrip('-')} = {[first, *more]} in its file, which "
            "`golow study run FILE` measures; `golow study show NAME --throughput` then prints how "
            "they scale.",
        )
    return first


def optimizer_of(flags: OptimizerFlags, mode: ModeName = ModeName.train) -> Optimizer:
    """The optimizer that these options describe; None is the optimizer's own default. Raises
    `GolowError` for betas that are not two numbers, and for any of the options without training."""
    for one in fields(flags):
        if mode is ModeName.infer and getattr(flags, one.name) != one.default:
            raise _of_training(one.name)
    try:
        first, second = (float(part) for part in flags.betas.split(","))
    except ValueError:
        raise GolowError(
            f"--betas {flags.betas} is not two numbers", "for example 0.9,0.999."
        ) from None
    given = {"momentum": flags.momentum, "weight_decay": flags.weight_decay}
    return Optimizer(
        name=flags.optimizer.value,
        learning_rate=flags.learning_rate,
        nesterov=flags.nesterov,
        betas=(first, second),
        smoothing=flags.smoothing,
        epsilon=flags.epsilon,
        clip=flags.clip,
        **{key: value for key, value in given.items() if value is not None},
    )


def _of_training(name: str) -> GolowError:
    option = f"--{name.replace('_', '-')}"
    return GolowError(
        f"{option} is for training steps; without --mode train, golow runs forward passes",
        f"add --mode train, or leave out {option}.",
    )

"""A model and its inputs -> a module with weights, real batches and the `Workload` for them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from golow import models
from golow.data import images
from golow.record import GolowError, Mode, ModelSource, TensorType, Workload
from golow.workload.batch import Batch
from golow.workload.request import Loss, Request, require_optimizer
from golow.workload.source import locate, random_layers
from golow.workload.trial import (
    give_back_memory,
    require_device,
    try_forward,
    try_inference,
    try_step,
    unusual,
)
from golow.workload.weights import fresh_module

# Losses of torch.nn.functional that take (output, class indices).
CLASSIFICATION_LOSSES = ("cross_entropy", "nll_loss")
BATCHES = 4
MOST_THREADS = 4096
CALLERS_INPUTS = "the caller's example inputs"  # what `Workload.data` says of them


class Prepared(NamedTuple):
    """A workload and what it describes: the module with its weights, the batches, the loss."""

    workload: Workload
    module: nn.Module
    batches: tuple[Batch, ...]
    loss: Loss | None


def prepare(request: Request, on_device: AbstractContextManager[None] | None = None) -> Prepared:
    """Build the model, its weights and its batches, and try one forward pass on the device.

    on_device: a context that is active while the model is tried on the device. Module and batches
    are on the CPU, whatever the device. Raises `GolowError` with what to type next if something
    does not fit.
    """
    _require_sense(request)
    source = locate(
        request.model,
        channels=request.channels,
        classes=request.classes,
        resolution=request.resolution,
    )
    shape = _sample_shape(source, request) if request.example_inputs is None else None
    source = _fit(source, shape)
    module, how = fresh_module(
        request.model, source, request.weights, request.initialisation, request.seed
    )
    module.train(request.mode == "train")
    if request.mode == "train" and source.kind == "program":
        raise GolowError(
            f"{source.name} is an exported program, which cannot be trained",
            "name the model's own source: file.py:Name.",
        )
    loss_name, loss = resolve_loss(request.loss, request.mode)
    if shape is not None:
        made = _image_batches(shape, request.batch or 8, request.seed)
        data = "handwritten digits (UCI), resized, mean 0 and variance 1"
    else:
        made = _example_batches(request)
        data = CALLERS_INPUTS

    def with_targets(batches: tuple[Batch, ...], output: Any) -> tuple[Batch, ...]:
        if loss is None:
            return tuple(Batch(batch.inputs) for batch in batches)
        return _fit_targets(batches, output, loss_name, shape is None, request.seed)

    first = next(made)
    with on_device or nullcontext():
        output = try_forward(module, first, source.name, request.device)
        [tried] = with_targets((first,), output)
        if loss is None:
            try_inference(module, tried, output, source.name, request.device)
        else:
            try_step(module, tried, loss, source.name, request.device)
        give_back_memory(request.device)  # the levels need what the tries took
    # The other batches come later: what does not fit on the device must not fill the host first.
    batches = with_targets((first, *made), output)

    workload = Workload(
        model=source.attribute or Path(source.name).stem,
        source=source,
        mode=request.mode,
        batch=batches[0].inputs[0].shape[0],
        inputs=tuple(_type(t) for t in batches[0].inputs),
        targets=tuple(_type(t) for t in batches[0].targets),
        device=request.device,
        precision=request.precision,
        loss=loss_name,
        optimizer=request.optimizer,
        initialisation=how,
        seed=request.seed,
        weights=str(request.weights or ""),
        data=data,
        batches=len(batches),
        threads=request.threads,
        parameters=sum(p.numel() for p in module.parameters()),
        random_layers=tuple(random_layers(module)) if request.mode == "train" else (),
    )
    return Prepared(workload, module, batches, loss)


def _require_sense(request: Request) -> None:
    """Raise `GolowError` for a request that no model can run."""
    if request.mode not in ("infer", "train"):
        raise GolowError(f"there is no mode {request.mode!r}", "modes are infer and train.")
    if request.batch is not None and request.batch < 1:
        raise GolowError(
            f"a batch of {request.batch} has no sample in it", "use --batch 1 or more."
        )
    if request.threads < 1:
        raise GolowError(f"{request.threads} threads compute nothing", "use --threads 1 or more.")
    if request.threads > MOST_THREADS:
        raise GolowError(f"{request.threads} threads are too many", "leave out --threads.")
    if not 0 <= request.seed < 2**64:
        raise GolowError(f"{request.seed} is not a seed", "use --seed 0 or more.")
    require_optimizer(request.optimizer)
    require_device(request.device, request.precision)


# ---------------------------------------------------------------- inputs, targets


def _sample_shape(source: ModelSource, request: Request) -> tuple[int, ...]:
    input_shape, resolution = request.input_shape, request.resolution
    if input_shape is not None and resolution is not None:
        raise GolowError("--input and --resolution both give the shape", "use only one of them.")
    if input_shape is not None:
        if not input_shape or any(size < 1 for size in input_shape):
            raise GolowError(f"the input shape {input_shape} is empty", "write it as 3x224x224.")
        return input_shape
    if resolution is not None and resolution < 1:
        raise GolowError(f"a resolution of {resolution} has no pixel", "use --resolution 32 or so.")
    if source.kind == "zoo":
        entry = models.ZOO[source.name]
        size = resolution or entry.resolution
        return (source.arguments.get("in_channels", entry.in_channels), size, size)
    if resolution is not None:
        return (3, resolution, resolution)
    raise GolowError(
        f"golow cannot guess the input of {source.attribute or source.name}",
        "give one sample's shape: --input 3x224x224 (or example_inputs= in Python).",
    )


def _fit(source: ModelSource, shape: tuple[int, ...] | None) -> ModelSource:
    """The source of a zoo model, with the arguments for the input that it will get."""
    if source.kind != "zoo" or shape is None:
        return source
    if len(shape) != 3 or shape[1] != shape[2]:
        raise GolowError(
            f"{source.name} takes square images, not {'x'.join(map(str, shape))}",
            "write --input 3x224x224 or --resolution 224.",
        )
    arguments = {**source.arguments, "in_channels": shape[0], "resolution": shape[1]}
    return ModelSource(kind="zoo", name=source.name, arguments=arguments)


def _image_batches(shape: tuple[int, ...], batch: int, seed: int) -> Iterator[Batch]:
    text = f"{BATCHES} batches of {batch} samples of {'x'.join(map(str, shape))}"
    too_large = GolowError(
        f"{text} do not fit into memory", "use a smaller --batch or --resolution."
    )
    if BATCHES * batch * math.prod(shape) * 4 > psutil.virtual_memory().total:
        raise too_large
    try:
        for x, y in images.batches(BATCHES, batch, shape, seed):
            yield Batch((torch.from_numpy(x),), (torch.from_numpy(y),))
    except MemoryError as error:
        raise too_large from error
    except ValueError as error:
        raise GolowError(str(error), "give another --input.") from error


def _example_batches(request: Request) -> Iterator[Batch]:
    """The caller's batch, and more made from it, because a level must not see only one batch.

    Samples are rotated (or the elements of a single one), and floating-point inputs are scaled
    slightly, so that every batch has a different correct output.
    """
    given, batch = _tensors(request.example_inputs, "example_inputs"), request.batch
    wanted = _tensors(request.targets, "targets")
    if not given:
        raise GolowError("example_inputs is empty")
    rows = given[0].shape[0] if given[0].dim() else 0
    if rows == 0 or any(t.dim() == 0 or t.shape[0] != rows for t in (*given, *wanted)):
        raise GolowError(
            "example_inputs and targets need the same first dimension, the batch",
            f"their shapes are {[tuple(t.shape) for t in (*given, *wanted)]}.",
        )
    if batch is not None and batch != rows:
        raise GolowError(f"batch={batch}, but the example inputs hold {rows} samples")

    def rotated(tensor: Tensor, index: int, scaled: bool) -> Tensor:
        if scaled and tensor.is_floating_point():
            return tensor.detach().roll(index, 0) * (1 - index / 16)
        return tensor.detach().roll(index, 0 if rows > 1 else -1)

    for index in range(BATCHES):
        inputs = tuple(rotated(t, index, True) for t in given)
        yield Batch(inputs, tuple(rotated(t, index, False) for t in wanted))


def _tensors(given: Tensor | Sequence[Tensor] | None, name: str) -> tuple[Tensor, ...]:
    items = (given,) if isinstance(given, Tensor) else tuple(given or ())
    if not all(isinstance(item, Tensor) for item in items):
        raise GolowError(f"{name} must be a tensor or a tuple of tensors")
    if wrong := [kind for item in items if (kind := unusual(item))]:
        raise GolowError(f"{name} contains a {wrong[0]} tensor", "give dense tensors with values.")
    return tuple(item.cpu() for item in items)


def resolve_loss(loss: str | Loss | None, mode: Mode) -> tuple[str, Loss | None]:
    """The loss by its name in torch.nn.functional, or the caller's own function."""
    if mode == "infer":
        return "", None
    if callable(loss):
        return getattr(loss, "__name__", type(loss).__name__), loss
    name = loss or "cross_entropy"
    found = getattr(nn.functional, name, None)
    if found is None or not inspect.isroutine(found):
        raise GolowError(
            f"torch.nn.functional has no loss {name!r}",
            "try cross_entropy, nll_loss, mse_loss or l1_loss; in Python any function works.",
        )
    return name, found


def _fit_targets(
    batches: tuple[Batch, ...], output: Any, loss: str, made_up: bool, seed: int
) -> tuple[Batch, ...]:
    """Targets that fit the model's output: the images' labels if the loss takes classes, otherwise
    seeded random numbers of the output's shape. The caller's own targets stay as they are."""
    if made_up and (batches[0].targets or loss not in dir(nn.functional)):
        return batches
    first = pytree.tree_leaves(output)[0]
    generator = torch.Generator().manual_seed(seed)
    fitted = []
    for batch in batches:
        if loss not in CLASSIFICATION_LOSSES:
            targets = torch.randn(first.shape, generator=generator)
        elif first.dim() < 2:
            raise GolowError(
                f"{loss} needs one score per class, but the model's output has the shape "
                f"{tuple(first.shape)}",
                "name another loss: --loss mse_loss.",
            )
        elif batch.targets and first.dim() == 2:
            targets = batch.targets[0] % first.shape[1]
        else:
            shape = (first.shape[0], *first.shape[2:])
            targets = torch.randint(first.shape[1], shape, generator=generator)
        fitted.append(Batch(batch.inputs, (targets,)))
    return tuple(fitted)


def _type(tensor: Tensor) -> TensorType:
    return TensorType(shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))

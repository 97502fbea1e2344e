"""A model and its inputs -> a module with weights, real batches and the `Workload` for them."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from golow import models
from golow.data import images
from golow.models.initialise import initialise
from golow.record import (
    Device,
    GolowError,
    Mode,
    ModelSource,
    Optimizer,
    Precision,
    TensorType,
    Workload,
)
from golow.workload.batch import Batch
from golow.workload.source import build_module, locate, random_layers
from golow.workload.trial import (
    give_back_memory,
    require_device,
    try_forward,
    try_inference,
    try_step,
)

Loss = Callable[..., Tensor]

# Losses of torch.nn.functional that take (output, class indices).
CLASSIFICATION_LOSSES = ("cross_entropy", "nll_loss")
BATCHES = 4


class Prepared(NamedTuple):
    """A workload with what it describes: the module with its weights, the batches, the loss."""

    workload: Workload
    module: nn.Module
    batches: tuple[Batch, ...]
    loss: Loss | None


def prepare(
    model: str | nn.Module,
    example_inputs: Tensor | Sequence[Tensor] | None = None,
    *,
    mode: Mode = "infer",
    batch: int | None = None,
    resolution: int | None = None,
    input_shape: tuple[int, ...] | None = None,
    channels: int | None = None,
    classes: int | None = None,
    weights: str | Path | None = None,
    initialisation: str | None = None,
    seed: int = 0,
    loss: str | Loss | None = None,
    targets: Tensor | Sequence[Tensor] | None = None,
    optimizer: Optimizer | None = None,
    threads: int = 1,
    device: Device = "cpu",
    precision: Precision = "default",
    on_device: AbstractContextManager[None] | None = None,
) -> Prepared:
    """Build the model, its weights and its batches, and try one forward pass on the device.

    input_shape is one sample's, without the batch; ``example_inputs`` (with the batch dimension)
    replaces the real images where the model takes something else. on_device: entered while the
    model is tried there. Module and batches are on the CPU, whatever the device. Raises
    `GolowError` with what to type next when any of it does not fit.
    """
    if mode not in ("infer", "train"):
        raise GolowError(f"there is no mode {mode!r}", "modes are infer and train.")
    if batch is not None and batch < 1:
        raise GolowError(f"a batch of {batch} has no sample in it", "use --batch 1 or more.")
    if threads < 1:
        raise GolowError(f"{threads} threads compute nothing", "use --threads 1 or more.")
    require_device(device, precision)
    source = locate(model, channels=channels, classes=classes, resolution=resolution)
    shape = _sample_shape(source, input_shape, resolution) if example_inputs is None else None
    source = _fit(source, shape)
    module, how = fresh_module(model, source, weights, initialisation, seed)
    module.train(mode == "train")
    if mode == "train" and source.kind == "program":
        raise GolowError(
            f"{source.name} is an exported program, which cannot be trained",
            "name the model's own source: file.py:Name.",
        )

    loss_name, loss_function = resolve_loss(loss, mode)
    if shape is not None:
        made = _image_batches(shape, batch or 8, seed)
        data = "handwritten digits (UCI), resized, mean 0 and variance 1"
    else:
        made = _example_batches(example_inputs, targets, batch)
        data = "the caller's example inputs"

    def with_targets(batches: tuple[Batch, ...], output: Any) -> tuple[Batch, ...]:
        if loss_function is None:
            return tuple(Batch(batch.inputs) for batch in batches)
        return _fit_targets(batches, output, loss_name, shape is None, seed)

    first = next(made)
    with on_device or nullcontext():
        output = try_forward(module, first, source.name, device)
        [tried] = with_targets((first,), output)
        if loss_function is None:
            try_inference(module, tried, output, source.name, device)
        else:
            try_step(module, tried, loss_function, source.name, device)
        give_back_memory(device)  # what the tries took, the levels need
    # The others after that: what does not fit on the device should not fill the host first.
    batches = with_targets((first, *made), output)

    workload = Workload(
        model=source.attribute or Path(source.name).stem,
        source=source,
        mode=mode,
        batch=batches[0].inputs[0].shape[0],
        inputs=tuple(_type(t) for t in batches[0].inputs),
        targets=tuple(_type(t) for t in batches[0].targets),
        device=device,
        precision=precision,
        loss=loss_name,
        optimizer=optimizer or Optimizer(),
        initialisation=how,
        seed=seed,
        weights=str(weights or ""),
        data=data,
        batches=len(batches),
        threads=threads,
        parameters=sum(p.numel() for p in module.parameters()),
        random_layers=tuple(random_layers(module)) if mode == "train" else (),
    )
    return Prepared(workload, module, batches, loss_function)


# ---------------------------------------------------------------- weights, inputs, targets


def fresh_module(
    model: str | nn.Module,
    source: ModelSource,
    weights: str | Path | None,
    initialisation: str | None,
    seed: int,
) -> tuple[nn.Module, str]:
    """The module, with the weights that it starts with, and words for the record of how it got
    them. model: the caller's own module, which is copied, or any name; source says where it is."""
    torch.manual_seed(seed)
    module = _copy(model) if isinstance(model, nn.Module) else build_module(source)
    return module, _give_weights(module, source, weights, initialisation, seed)


def _copy(module: nn.Module) -> nn.Module:
    """The caller's module stays in its own mode, with its own weights, on its own device."""
    try:
        return copy.deepcopy(module).cpu()
    except Exception as error:
        raise GolowError(
            f"the module cannot be copied: {type(error).__name__}: {error}",
            "put it into a file and name it as file.py:Name.",
        ) from error


def _give_weights(
    module: nn.Module,
    source: ModelSource,
    weights: str | Path | None,
    initialisation: str | None,
    seed: int,
) -> str:
    """Fill in the weights; returns the words for the record."""
    if weights is not None:
        _load_weights(module, Path(weights))
        return f"weights of {Path(weights).name}"
    if initialisation is not None or source.kind == "zoo":
        name = initialisation or "default"
        try:
            initialise(module, name, seed)
        except (KeyError, ValueError) as error:
            raise GolowError(str(error.args[0])) from error
        return f"{name}, seed {seed}"
    if source.kind in ("pickle", "program"):
        return "as given"
    return f"the model's own constructor, seed {seed}"


def _load_weights(module: nn.Module, path: Path) -> None:
    if path.suffix != ".safetensors":
        raise GolowError(
            f"{path} is not a .safetensors file",
            "pickled weights can run code; convert them: safetensors.torch.save_file("
            "torch.load(PATH, weights_only=True), 'weights.safetensors').",
        )
    if not path.is_file():
        raise GolowError(f"there is no file {path}")
    try:
        state = load_file(path)
    except (SafetensorError, OSError) as error:
        raise GolowError(f"{path} cannot be read: {error}") from error
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        lines = "\n".join(str(error).splitlines()[:6])
        raise GolowError(f"{path} does not fit the model: {lines}") from error


def _sample_shape(
    source: ModelSource, input_shape: tuple[int, ...] | None, resolution: int | None
) -> tuple[int, ...]:
    if input_shape is not None and resolution is not None:
        raise GolowError("--input and --resolution both say the shape", "give one of them.")
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
    """A zoo model built for the input that it will get."""
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
    for x, y in images.batches(BATCHES, batch, shape, seed):
        yield Batch((torch.from_numpy(x),), (torch.from_numpy(y),))


def _example_batches(
    inputs: Tensor | Sequence[Tensor] | None,
    targets: Tensor | Sequence[Tensor] | None,
    batch: int | None,
) -> Iterator[Batch]:
    """The caller's batch, and more made of it, because a level must not see one batch only.

    Samples change places (the elements of a single one do), and floating point inputs are scaled a
    little, so that every batch has another right answer.
    """
    given = _tensors(inputs, "example_inputs")
    wanted = _tensors(targets, "targets") if targets is not None else ()
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
            "try cross_entropy, nll_loss, mse_loss or l1_loss; in Python any function will do.",
        )
    return name, found


def _fit_targets(
    batches: tuple[Batch, ...], output: Any, loss: str, made_up: bool, seed: int
) -> tuple[Batch, ...]:
    """Targets that fit the model's output: the images' labels where the loss takes classes, else
    seeded numbers of the output's shape. The caller's own targets stay as they are."""
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
                f"{loss} needs one score a class, but the model's output has the shape "
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

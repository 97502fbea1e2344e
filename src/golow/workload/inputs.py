"""The batches of a workload: images, made-up inputs of a model of the zoo, or the caller's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch
from msgspec.structs import replace
from torch import Generator, Tensor

from golow import models
from golow.data import images
from golow.models import Entry, Field
from golow.records.errors import GolowError
from golow.records.workload import ModelSource
from golow.storage.files import require_file
from golow.workload.batch import Batch
from golow.workload.hub import huggingface_inputs, timm_models
from golow.workload.nested_inputs import hint_for
from golow.workload.program import program_inputs, program_samples
from golow.workload.request import CALLERS_INPUTS, PROGRAMS_INPUTS, Request
from golow.workload.request import Inputs as Given
from golow.workload.source import locate
from golow.workload.trial import unusual

BATCHES = 4  # of one rank
DIGITS = "handwritten digits (UCI), resized, mean 0 and variance 1"
EXAMPLE = "give one sample's shape, input_shape=(3, 224, 224), or a batch, example_inputs=."
MADE_UP = "made up from the seed: {}"


class Inputs(NamedTuple):
    """Where the model comes from, its batches, made lazily, and what they are, for the record.
    tokens: of text, in one batch."""

    source: ModelSource
    batches: Iterator[Batch]
    data: str
    tokens: int = 0


def make_inputs(request: Request) -> Inputs:
    """The batches that a request describes; raises `GolowError` for options that do not fit the
    model."""
    source = locate(
        request.model,
        channels=request.channels,
        classes=request.classes,
        resolution=request.resolution,
        mode=request.mode,
        pretrained=request.pretrained,
        download=request.download,
    )
    if source.kind == "huggingface" and request.example_inputs is None:
        return _of_huggingface(source, request)
    if request.phase:
        raise GolowError(
            "--phase is for causal models of Hugging Face, with inputs that golow generates",
            "for example hf:gpt2 --random-weights --phase decode.",
        )
    entry = models.ZOO[source.name] if source.kind == "zoo" else None
    takes_images = entry is None or entry.takes_images
    if takes_images and request.sequence is not None:
        raise GolowError(
            f"--sequence is for models of the zoo that take text; {source.name} does not",
            "use --resolution or --input; `golow models` lists the inputs of each model.",
        )
    if entry is not None and not takes_images:
        _refuse_image_options(entry, request)
    if request.example_inputs is not None:
        if isinstance(request.example_inputs, Mapping):
            source = replace(source, keywords=tuple(request.example_inputs))
        return Inputs(source, _example_batches(request), CALLERS_INPUTS)
    batch = request.batch or 8
    if entry is not None and not takes_images:
        made = _made_up_batches(entry, request, batch)
        tokens = batch * (request.sequence or entry.sequence)
        return Inputs(source, made, MADE_UP.format(", ".join(entry.inputs())), tokens)
    if source.kind == "program" and request.input_shape is None and request.resolution is None:
        return _of_program(source, request)
    shape = _sample_shape(source, request)
    made = _image_batches(shape, batch, request.seed, _count(request))
    return Inputs(_fit(source, shape), made, DIGITS)


def _count(request: Request) -> int:
    """The batches of all ranks: one of each rank makes up a whole batch."""
    return BATCHES * request.ranks


def _of_program(source: ModelSource, request: Request) -> Inputs:
    """The inputs that an exported program states itself. Where its batch is free it is the
    request's."""
    forms = program_inputs(Path(source.name))
    shown = ", ".join(f"{_words(shape)} {str(dtype)[6:]}" for shape, dtype in forms)
    sizes = {shape[0] for shape, _ in forms if shape}
    known = all(shape and None not in shape[1:] and d.is_floating_point for shape, d in forms)
    stored = () if known else program_samples(Path(source.name))
    if not forms or len(sizes) != 1 or not (known or stored):
        raise GolowError(
            f"golow cannot generate the inputs of {Path(source.name).name}, which takes {shown}",
            "give one sample's shape: --input 3x224x224.",
            python_hint=EXAMPLE,
        )
    [stated] = sizes
    if request.batch not in (None, stated or request.batch):
        raise _fixed_batch(Path(source.name), stated)
    if stored:
        return Inputs(source, _stored_batches(stored, request.batch), PROGRAMS_INPUTS)
    batch = stated or request.batch or 8
    samples = [tuple(side or 1 for side in shape[1:]) for shape, _ in forms]
    if len(samples) == 1 and samples[0]:
        return Inputs(source, _image_batches(samples[0], batch, request.seed, BATCHES), DIGITS)
    _require_memory(BATCHES, batch * sum(map(math.prod, samples)), f"{batch} samples")

    def made() -> Iterator[Batch]:
        generator = Generator().manual_seed(request.seed)
        for _ in range(BATCHES):
            yield Batch(tuple(torch.randn((batch, *s), generator=generator) for s in samples))

    return Inputs(source, made(), MADE_UP.format("numbers"))


def require_batches(model: str, batches: Sequence[int]) -> None:
    """Raise `GolowError` for an exported program that has a separate batch, and not these."""
    if len(batches) < 2 or not model.endswith(".pt2"):
        return
    path = Path(model)
    require_file(path)
    for shape, _ in program_inputs(path):
        if shape and shape[0] is not None and {*batches} != {shape[0]}:
            raise _fixed_batch(path, shape[0])


def _fixed_batch(path: Path, stated: int | None) -> GolowError:
    return GolowError(
        f"{path.name} was exported for a batch of {stated}",
        "leave out --batch, or export it with a free batch.",
    )


def _stored_batches(stored: tuple[Tensor, ...], wanted: int | None) -> Iterator[Batch]:
    """The inputs that an exported program was exported with, and more made from them: samples are
    rotated and repeated up to the batch size, numbers scaled slightly."""
    for index in range(BATCHES):
        yield Batch(tuple(_varied(tensor, index, wanted) for tensor in stored))


def _varied(tensor: Tensor, index: int, wanted: int | None) -> Tensor:
    tensor = tensor.detach()
    if tensor.dim():
        rows = len(tensor)
        tensor = tensor[(torch.arange(wanted or rows) - index) % rows]
    return tensor * (1 - index / 16) if tensor.is_floating_point() else tensor


def _words(shape: tuple[int | None, ...]) -> str:
    return "x".join("N" if side is None else str(side) for side in shape) or "one number"


def _of_huggingface(source: ModelSource, request: Request) -> Inputs:
    made = huggingface_inputs.makers(source, request)
    source = replace(source, keywords=tuple(made.makers), settings=made.settings)
    rows = huggingface_inputs.batches(made, _count(request), request.seed)
    names = dict.fromkeys(name.partition(".")[0] for name in made.makers)
    return Inputs(source, map(Batch, rows), MADE_UP.format(", ".join(names)), made.tokens)


# ---------------------------------------------------------------- text and recommendations


def _refuse_image_options(entry: Entry, request: Request) -> None:
    given = {
        "--resolution": request.resolution,
        "--input": request.input_shape,
        "--channels": request.channels,
        "--classes": None if entry.classes else request.classes,
    }
    for option, value in given.items():
        if value is not None:
            raise GolowError(
                f"{entry.name} takes {', '.join(entry.inputs())}; {option} does not apply to it",
                f"leave it out, or use --sequence {entry.sequence}."
                if entry.sequence
                else "leave it out.",
            )


def _made_up_batches(entry: Entry, request: Request, batch: int) -> Iterator[Batch]:
    """Seeded random inputs: ids below the vocabulary, masks of sequences of different lengths."""
    sequence = request.sequence or entry.sequence
    if request.sequence is not None:
        try:
            entry.require_sequence(request.sequence)
        except ValueError as error:
            hint = (
                f"use --sequence {entry.sequence}." if entry.sequence else "leave out --sequence."
            )
            raise GolowError(str(error), hint) from error
    vocabulary = request.classes or entry.classes
    count = _count(request)
    _require_memory(count, batch * max(1, sequence) * len(entry.fields), f"{batch} samples")

    def made() -> Iterator[Batch]:
        generator = Generator().manual_seed(request.seed)
        for _ in range(count):
            yield Batch(
                tuple(_made_up(f, batch, sequence, vocabulary, generator) for f in entry.fields)
            )

    return made()


def _made_up(
    field: Field, batch: int, sequence: int, vocabulary: int, generator: Generator
) -> Tensor:
    shape = (batch, *(sequence if size == "sequence" else size for size in field.shape))
    if field.kind == "numbers":
        return torch.randn(shape, generator=generator)
    if field.kind == "mask":
        # At least half of each sequence is tokens, the rest is padding after them.
        lengths = torch.randint((sequence + 1) // 2, sequence + 1, (batch, 1), generator=generator)
        return torch.arange(sequence) < lengths
    below = torch.tensor(field.below or (vocabulary,))
    # The remainder of a large number: each column has a separate limit.
    return torch.randint(2**62, shape, generator=generator) % below


# ---------------------------------------------------------------- images


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
    if source.kind == "timm":
        channels, *sides = timm_models.sample_shape(source)
        return (channels, *((resolution, resolution) if resolution else sides))
    if resolution is not None:
        return (3, resolution, resolution)
    raise GolowError(
        f"golow cannot guess the input of {source.attribute or source.name}",
        "give one sample's shape: --input 3x224x224.",
        python_hint=EXAMPLE,
    )


def _fit(source: ModelSource, shape: tuple[int, ...]) -> ModelSource:
    """The source of a zoo model, with the arguments for the input that it will get."""
    if source.kind != "zoo":
        return source
    if len(shape) != 3 or shape[1] != shape[2]:
        raise GolowError(
            f"{source.name} takes square images, not {'x'.join(map(str, shape))}",
            "write --input 3x224x224 or --resolution 224.",
        )
    arguments = {**source.arguments, "in_channels": shape[0], "resolution": shape[1]}
    return ModelSource(kind="zoo", name=source.name, arguments=arguments)


def _image_batches(shape: tuple[int, ...], batch: int, seed: int, count: int) -> Iterator[Batch]:
    text = f"samples of {'x'.join(map(str, shape))}"
    _require_memory(count, batch * math.prod(shape), f"{batch} {text}")
    try:
        for x, y in images.batches(count, batch, shape, seed):
            yield Batch((torch.from_numpy(x),), (torch.from_numpy(y),))
    except MemoryError as error:
        raise _too_large(count, f"{batch} {text}") from error
    except ValueError as error:
        raise GolowError(str(error), "give another --input.") from error


def _require_memory(count: int, elements: int, text: str) -> None:
    """Raise `GolowError` if this many batches of this many elements do not fit into memory."""
    if count * elements * 4 > psutil.virtual_memory().total:
        raise _too_large(count, text)


def _too_large(count: int, text: str) -> GolowError:
    return GolowError(
        f"{count} batches of {text} do not fit into memory",
        "use a smaller --batch, --resolution or --sequence.",
    )


# ---------------------------------------------------------------- the caller's


def _example_batches(request: Request) -> Iterator[Batch]:
    """The caller's batch, and more made from it, because a level must not see only one batch.

    Samples are rotated (or the elements of a single one), and floating-point inputs are scaled
    slightly, so that every batch has a different correct output.
    """
    given, batch = _tensors(request.example_inputs, "example_inputs"), request.batch
    wanted = _tensors(request.targets, "targets")
    if not given:
        raise GolowError("example_inputs is empty")
    rows = given[0].shape[0] if given[0].dim() else None
    if rows == 0:
        raise GolowError(
            f"example_inputs holds an empty batch: the first input is {_shape(given[0])}",
            "give at least one sample.",
        )
    if rows is None or any(t.dim() == 0 or t.shape[0] != rows for t in (*given, *wanted)):
        shapes = ", ".join(map(_shape, (*given, *wanted)))
        raise GolowError(
            "example_inputs and targets need the same first dimension, the batch: these are "
            f"{shapes}",
            "where samples share an input, or there is no batch, write a module around the model "
            "that takes each input with a first axis of 1, x[None], and removes it.",
        )
    if batch is not None and batch != rows:
        raise GolowError(
            f"a batch has {batch} samples, but the example inputs hold {rows}",
            "leave out batch=; a load test takes max_batch= instead, 8 by default.",
        )

    count = _count(request)

    def rotated(tensor: Tensor, index: int, scaled: bool) -> Tensor:
        if scaled and tensor.is_floating_point():
            return tensor.detach().roll(index, 0) * (1 - index / (4 * count))
        return tensor.detach().roll(index, 0 if rows > 1 else -1)

    for index in range(count):
        inputs = tuple(rotated(t, index, True) for t in given)
        yield Batch(inputs, tuple(rotated(t, index, False) for t in wanted))


def _tensors(given: Given | None, name: str) -> tuple[Tensor, ...]:
    names = tuple(given) if isinstance(given, Mapping) else ()
    if isinstance(given, Mapping):
        given = tuple(given.values())
    items = _items(given)
    for position, item in enumerate(items):
        if not isinstance(item, Tensor):
            place = names[position] if names else position
            raise GolowError(
                f"{name}[{place!r}] is {_kind(item)}, and golow gives models tensors",
                hint_for(
                    item,
                    "leave out inputs that have a default, or wrap the model in a module that adds "
                    "them; torch.as_tensor makes tensors of numbers and arrays.",
                ),
            )
    if wrong := [kind for item in items if (kind := unusual(item))]:
        raise GolowError(
            f"{name} contains a {wrong[0]} tensor", "give dense tensors of real numbers."
        )
    return tuple(item.cpu() for item in items)


def _items(given: Any) -> tuple[Any, ...]:
    """The inputs one by one: a tuple or list of them, or a single one."""
    if isinstance(given, (tuple, list)):
        return tuple(given)
    return () if given is None else (given,)


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "()"


def _kind(item: object) -> str:
    return "None" if item is None else f"of type {type(item).__name__}"

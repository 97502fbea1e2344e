"""Finds the model of a request for texts, and prepares its workload and its weights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import nn

from golow.models import ZOO
from golow.records.errors import GolowError
from golow.records.quantization import Calibration
from golow.records.text import Alphabet, EncoderInput, TextWorkload
from golow.records.workload import Device, ModelSource
from golow.storage.files import is_folder, read_json
from golow.workload.generation.alphabet import alphabet_of, tokens_of
from golow.workload.generation.calibration_text import calibration_text
from golow.workload.generation.encoder_sources import (
    ONE_NUMBER,
    is_encoder_decoder,
    reads_of,
    require_generating,
    require_sources,
)
from golow.workload.generation.own_positions import takes_own_positions
from golow.workload.generation.request import PROMPT, TextRequest, require_sense
from golow.workload.generation.step_modules import (
    HALVES,
    facts_of,
    in_precision,
    is_own_step,
    longest_text,
    step_of,
)
from golow.workload.hub import downloads
from golow.workload.hub.huggingface import TOKENIZERS
from golow.workload.pickled_module import pickled
from golow.workload.printed import printed_to_stderr
from golow.workload.quantization.quantize import quantized
from golow.workload.quantization.quantized_weights import with_quantized_layers
from golow.workload.quantization.replacing import (
    parameter_count,
    quantized_count,
    with_rules_of,
)
from golow.workload.registered_parameters import parameters_in
from golow.workload.source import locate
from golow.workload.trial import require_device
from golow.workload.weights import are_random, fresh_module

TRAINING = "plan.json"  # marks the folder of a training run


class PreparedText(NamedTuple):
    """A workload for each batch size, the module with its weights, and the tokens of the texts that
    the user gave, if any. pickled: a live module."""

    workloads: tuple[TextWorkload, ...]
    module: nn.Module
    prompts: tuple[tuple[int, ...], ...] = ()
    pickled: bytes = b""


@printed_to_stderr()
def prepare_text(request: TextRequest) -> PreparedText:
    """Build the model with its weights and try a step of each batch size. Raises `GolowError` with
    what to type next if something does not fit."""
    require_sense(request)
    require_device(request.device, "default")
    _require_threads(request.threads)
    model, weights, classes = _named(request)
    source = locate(
        model, classes=classes, pretrained=request.pretrained, download=request.download
    )
    if request.download and source.kind == "huggingface" and not Path(source.name).exists():
        downloads.download(source.name, TOKENIZERS)
    live = _sent(model) if isinstance(model, nn.Module) else b""
    with _drawn_in_place(source, weights, request):
        module, how = fresh_module(
            model, with_quantized_layers(source, weights), weights, None, request.seed
        )
    source = with_rules_of(source, module)
    if source.quantized and request.precision != "default":
        raise GolowError(
            f"a quantised network computes in float32, not in {request.precision}",
            "leave out --precision.",
        )
    name = source.attribute or Path(source.name).stem
    _require_text_model(module, source, name)
    alphabet = alphabet_of(source, module)
    module, source, calibration = _in_precision(module.eval(), source, request, alphabet)
    module = module.to(request.device)
    given = (request.text,) if isinstance(request.text, str) else request.text or ()
    prompts = tuple(tuple(tokens_of(text, alphabet, source)) for text in given)
    lengths = tuple(map(len, prompts))
    length = max(lengths, default=request.prompt or PROMPT)
    encoder: EncoderInput = reads_of(module, name) if is_encoder_decoder(module) else ""
    if encoder == "features":
        length = ONE_NUMBER
    if encoder:
        require_sources(module, name, request, length, lengths)
    else:
        _require_room(module, name, length, request.tokens)
    differ = len(set(lengths)) > 1
    workloads = []
    for batch in request.batch if len(prompts) < 2 else (len(prompts),):
        step = step_of(module, batch, length + request.tokens, length)
        found = facts_of(step, module, name, batch, length, length + request.tokens)
        if differ:
            _require_own_positions(step, name, batch, length + request.tokens, request.device)
        workloads.append(
            TextWorkload(
                model=name,
                source=source,
                vocabulary=found.vocabulary,
                batch=batch,
                prompt=length,
                tokens=request.tokens,
                lengths=lengths if differ else (),
                precision=request.precision,
                device=request.device,
                threads=request.threads,
                sampling=request.sampling,
                seed=request.seed,
                alphabet=alphabet,
                initialisation=how,
                parameters=parameter_count(module),
                weight_bytes=found.weight_bytes,
                cache_bytes=found.cache_bytes,
                encoder=encoder,
                encoder_bytes=found.encoder_bytes,
                quantized_parameters=quantized_count(module),
                calibration=calibration,
            )
        )
    return PreparedText(tuple(workloads), module, prompts, live)


@contextmanager
def _drawn_in_place(
    source: ModelSource, weights: str | Path | None, request: TextRequest
) -> Iterator[None]:
    """Let random weights of a model from transformers be drawn on the device and in the precision
    that they get, as its users have them drawn."""
    with ExitStack() as modes:
        if source.kind == "huggingface" and are_random(source, weights):
            if request.device != "cpu":
                modes.enter_context(torch.device(request.device))
            if (half := HALVES.get(request.precision)) is not None:
                modes.enter_context(parameters_in(dtype=half))
        yield


def _in_precision(
    module: nn.Module, source: ModelSource, request: TextRequest, alphabet: Alphabet
) -> tuple[nn.Module, ModelSource, Calibration | None]:
    """Return the module in the precision of the request, the source of a worker's, and the
    calibration, if there is one."""
    precision = request.precision
    if precision not in ("int8-weights", "int4-weights", "fp8-weights"):
        return in_precision(module, precision), source, None
    text = None
    if request.calibrate is not None:
        text = calibration_text(request.calibrate, alphabet, source, module)
    made = quantized(module, precision, tuple if text is None else text.samples)
    source = msgspec.structs.replace(source, quantized=made.layers)
    return made.module, source, None if text is None else text.described()


def _named(request: TextRequest) -> tuple[str | nn.Module, str | Path | None, int | None]:
    """The model, its weights and its vocabulary: those of the training run if a folder is given."""
    named = request.model
    if not isinstance(named, str) or named in ZOO or not is_folder(Path(named)):
        return named, request.weights, request.classes
    folder = Path(named)
    if not (folder / TRAINING).is_file():
        raise GolowError(
            f"there is no training in {folder}",
            "name a folder that `golow train` wrote, of a training run on text.",
        )
    plan = read_json(folder / TRAINING, dict[str, Any])
    found = sorted(folder.glob("*/*/seed-*/best.safetensors"))
    if not found:
        raise GolowError(f"the training in {folder} has no weights yet", "let an epoch end first.")
    eager = [file for file in found if file.relative_to(folder).parts[0] == "eager"]
    facts = plan.get("dataset")
    if not isinstance(facts, dict) or facts.get("name") != "text":
        raise GolowError(
            f"the training in {folder} was not on text", "train one: golow train gpt2_small."
        )
    if not isinstance(plan.get("model"), str) or plan.get("live"):
        raise GolowError(
            f"the training in {folder} was of a module in a running program",
            "give the module to golow.generate, and its weights as weights=.",
        )
    model = plan["model"]
    return model, (eager or found)[0], len(facts["classes"]) if model in ZOO else None


def _sent(model: nn.Module) -> bytes:
    found = pickled(model, "the module")
    if isinstance(found, GolowError):
        raise found
    return found


def _require_threads(threads: int) -> None:
    cores = len(os.sched_getaffinity(0))
    if not 1 <= threads <= cores:
        raise GolowError(
            f"{threads} threads do not fit the {cores} hardware threads that golow may use here",
            f"use --threads 1 to {cores}.",
        )


def _require_text_model(module: nn.Module, source: ModelSource, name: str) -> None:
    if source.kind == "zoo" and is_own_step(module):
        raise GolowError(
            f"golow cannot generate text with {name}",
            "use gpt2_small, a causal model as hf:NAME, or your own step module as file.py:Name.",
        )
    if is_encoder_decoder(module):
        require_generating(module, name)


def _require_own_positions(
    step: nn.Module, name: str, batch: int, longest: int, device: Device
) -> None:
    if device == "cpu" and takes_own_positions(step, batch, longest):
        return
    what = "on a GPU" if device == "cuda" else f"by {name}, which takes one position for all texts"
    raise GolowError(
        f"texts of different lengths cannot be generated {what}",
        "give texts with equal numbers of tokens.",
    )


def _require_room(module: nn.Module, name: str, prompt: int, tokens: int) -> None:
    longest = longest_text(module)
    if longest is not None and prompt + tokens > longest:
        raise GolowError(
            f"{name} has positions for {longest} tokens, not {prompt} + {tokens}",
            "use fewer --tokens or a shorter prompt.",
        )


def with_digest(workload: TextWorkload, sha256: str) -> TextWorkload:
    """The workload with the digest of a live module, by which a worker knows it."""
    source = msgspec.structs.replace(workload.source, sha256=sha256)
    return msgspec.structs.replace(workload, source=source)

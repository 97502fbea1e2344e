"""A model and its inputs -> a module with weights, real batches and the `Workload` for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from torch import Tensor, nn

from golow.lower.capture.gradient_hooks import require_unhooked_gradients
from golow.records.errors import GolowError
from golow.records.workload import ModelSource, TensorType, Workload
from golow.workload.as_prepared import in_mode
from golow.workload.batch import Batch
from golow.workload.inputs import make_inputs
from golow.workload.keywords import accept_keywords
from golow.workload.known_causes import (
    require_dense_gradients,
    require_numbers,
    require_own_statistics,
    require_plain_module,
    require_tensors,
    require_trainable,
)
from golow.workload.losses import named_loss, resolve_loss
from golow.workload.pickled_module import pickled, without_caches
from golow.workload.printed import printed_to_stderr
from golow.workload.quantization.quantized_weights import with_quantized_layers
from golow.workload.quantization.replacing import parameter_count, with_rules_of
from golow.workload.request import (
    Loss,
    Request,
    require_mode,
    require_optimizer,
    require_precision,
    require_ranks,
    require_seed,
    require_whole_numbers,
)
from golow.workload.source import random_layers, require_not_exported
from golow.workload.targets import fit_targets
from golow.workload.trial import give_back_memory, require_device
from golow.workload.trying_out import try_out
from golow.workload.variances import measure_variances
from golow.workload.varying_sizes import require_fixed_sizes
from golow.workload.weights import are_random, fresh_module

PUBLISHED = ("zoo", "huggingface", "timm")
"""Sources of models whose outputs are known to have fixed sizes."""


class Prepared(NamedTuple):
    """A workload and what it describes: the module with its weights, the batches, the loss.
    pickled: a live module, as it was before it ran, or why it cannot be sent to a worker. notes:
    for the record."""

    workload: Workload
    module: nn.Module
    batches: tuple[Batch, ...]
    loss: Loss | None
    pickled: bytes | GolowError = b""
    notes: tuple[str, ...] = ()


@printed_to_stderr()
def prepare(request: Request, on_device: AbstractContextManager[None] | None = None) -> Prepared:
    """Build the model, its weights and its batches, and try one forward pass on the device.

    on_device: a context that is active while the model is tried on the device. Module and batches
    are on the CPU, whatever the device. Raises `GolowError` with what to type next if something
    does not fit.
    """
    _require_sense(request)
    source, made, data, tokens = make_inputs(request)
    source = _with_quantized_layers(source, request)
    module, how = _sound_module(request, source)
    source = with_rules_of(source, module)
    if request.mode == "train":
        _require_unquantized(source, _name_of(source))
    notes = without_caches(module) if source.kind == "pickle" else ()
    live = pickled(module, "the module") if source.kind == "pickle" else b""
    if source.kind == "pickle" and source.keywords:
        accept_keywords(module, source.keywords, source.settings)
    loss_name, loss = resolve_loss(request.loss, request.mode, source)

    def with_targets(batches: tuple[Batch, ...], output: Any) -> tuple[Batch, ...]:
        if loss is None:
            return tuple(Batch(batch.inputs) for batch in batches)
        callers = request.example_inputs is not None
        return fit_targets(batches, output, loss_name, request.seed, callers=callers)

    with on_device or nullcontext():
        tried = try_out(module, made, _name_of(source), request, loss, with_targets)
        if source.kind not in PUBLISHED and _needs_fixed_sizes(request, loss_name):
            require_fixed_sizes(module, tried, _name_of(source), request.device)
        give_back_memory(request.device)  # the levels need what the tries took
    changes, draws = tried.changes, tried.draws
    # The other batches come later: what does not fit on the device must not fill the host first.
    batches = with_targets((tried.first, *tried.others), tried.output)
    if request.mode == "infer" and are_random(source, request.weights):
        samples = measure_variances(module, batches)
        how += f", norms' variances of {samples} samples" if samples else ""

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
        batches=len(batches) // request.ranks,
        threads=request.threads,
        parameters=parameter_count(module),
        random_layers=(*random_layers(module), *tried.dropping) if request.mode == "train" else (),
        draws=draws,
        changed_inputs=changes.inputs,
        assigned_buffers=changes.assigned,
        takes_gradients=tried.takes_gradients,
        phase=request.phase,
        tokens=tokens,
        ranks=request.ranks,
    )
    notes = (*notes, *_notes(workload))
    return Prepared(workload, module, batches, loss, live, notes)


def prepare_for_absent(request: Request) -> Prepared:
    """Prepare the workload for a device that may be missing here: the model is built and tried on
    the CPU. Raises `GolowError` as `prepare` does."""
    require_precision(request.device, request.precision)
    prepared = prepare(replace(request, device="cpu", precision="default"))
    workload = msgspec.structs.replace(
        prepared.workload, device=request.device, precision=request.precision
    )
    return prepared._replace(workload=workload)


def _notes(workload: Workload) -> Iterator[str]:
    """Notes for the record about how every level runs the module, and what it omits."""
    if workload.phase:
        yield (
            f"one {workload.phase} step, whose cache is not kept: golow generate times whole texts"
        )
    if workload.changed_inputs:
        places = ", ".join(map(str, workload.changed_inputs))
        yield (
            f"the model changes input {places} in place: at every level each pass gets a copy, "
            "which its time includes"
        )
    if workload.assigned_buffers:
        names = ", ".join(workload.assigned_buffers)
        yield f"the model replaces {names} in each step: every level writes the new content instead"
    if workload.takes_gradients:
        yield (
            "the model takes gradients in its forward pass: levels inside PyTorch run it under "
            "torch.no_grad, not in inference mode"
        )
    if workload.source.quantized:
        yield (
            "the network is quantised: match means that a level computes the quantised network, "
            "whose float64 result is the reference, not that this is the original's"
        )


def _sound_module(request: Request, source: ModelSource) -> tuple[nn.Module, str]:
    """The module in the workload's mode, with its weights, and what these are, for the record."""
    training = request.mode == "train"
    if isinstance(request.model, nn.Module):
        require_plain_module(request.model, _name_of(source))
        if training:
            require_unhooked_gradients(request.model, _name_of(source))
    if training:
        require_not_exported(source)
    module, how = fresh_module(
        request.model, source, request.weights, request.initialisation, request.seed
    )
    name = _name_of(source)
    require_plain_module(module, name)
    require_tensors(module, name)
    require_numbers(module, name)
    require_trainable(module, name, request.mode)
    if training:
        require_dense_gradients(module, name)
        require_own_statistics(module, name, request.ranks)
    return in_mode(module, training), how


def _with_quantized_layers(source: ModelSource, request: Request) -> ModelSource:
    """The source of the quantised network, if the file of weights holds one."""
    quantized = with_quantized_layers(source, request.weights)
    if request.mode == "train":
        _require_unquantized(quantized, str(request.weights))
    return quantized


def _require_unquantized(source: ModelSource, name: str) -> None:
    """Raise `GolowError` for a quantised network."""
    if source.quantized:
        raise GolowError(
            f"{name} is a quantised network, which cannot be trained",
            "train the network that it was made from.",
        )


def _name_of(source: ModelSource) -> str:
    """The model's name in messages."""
    return source.attribute or source.name


def _require_sense(request: Request) -> None:
    """Raise `GolowError` for a request that no model can run."""
    require_mode(request.mode)
    require_whole_numbers(request)
    if request.batch is not None and request.batch < 1:
        raise GolowError(f"a batch of {request.batch} has no samples", "use --batch 1 or more.")
    require_ranks(request)
    if request.threads < 1:
        raise GolowError(f"{request.threads} threads compute nothing", "use --threads 1 or more.")
    cores = len(os.sched_getaffinity(0))
    if request.threads > cores:
        raise GolowError(
            f"{request.threads} threads are more than the {cores} hardware threads that golow may "
            "use here",
            f"use --threads {cores} or fewer.",
        )
    require_seed(request.seed)
    require_optimizer(request.optimizer)
    require_device(request.device, request.precision, request.ranks)


def _needs_fixed_sizes(request: Request, loss: str) -> bool:
    """True unless it is a training step whose targets golow does not make: of its results only the
    loss has one size."""
    makes_targets = request.targets is None and named_loss(loss) is not None
    return request.mode == "infer" or makes_targets


def _type(tensor: Tensor) -> TensorType:
    return TensorType(shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
